// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e && bench

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"
)

const (
	lineLength   = 100 // bytes, with the newline
	linesARound  = 200_000
	bytesARound  = lineLength * linesARound
	logFileMB    = 2000 // nothing is rotated away
	logRoundTime = 2 * time.Minute
)

// writer prints many lines at once whenever the next file go.N appears.
var writer = fmt.Sprintf(`trap 'exit 0' TERM; n=0
while :; do
  until [ -e /alloc/data/go.$n ]; do usleep 10000; done
  yes %0*d | head -n %d
  n=$((n+1))
done`, lineLength-1, 0, linesARound)

// speaker is a task with measured output.
type speaker struct {
	driver string
	dir    string // of its allocation, on the host
	rounds int
	times  []time.Duration
}

// From the first line that a container writes until its last one is in Nomad's log
// file.
func TestBench_logs(t *testing.T) {
	speakers := []*speaker{shared.newSpeaker(t, builtIn), shared.newSpeaker(t, ours)}
	count := rounds(20, 3)
	for round := range 1 + count { // the first one is not counted
		for turn := range speakers {
			s := speakers[(round+turn)%len(speakers)]
			if took := s.speak(t); round > 0 {
				s.times = append(s.times, took)
			}
		}
	}
	r := newReport(t, fmt.Sprintf("Logs of one container, until all are in Nomad's file: %d rounds of %d lines of %d bytes", count, linesARound, lineLength),
		"", "median", "p90", "throughput", "ratio of times", "at most")
	reference := quantile(speakers[0].times, .5)
	for n, s := range speakers {
		median := quantile(s.times, .5)
		cells := []string{s.driver, milliseconds(median), milliseconds(quantile(s.times, .9)),
			fmt.Sprintf("%.1f MB/s", bytesARound/1e6/median.Seconds())}
		if n > 0 {
			cells = append(cells, r.atMost(ratio(median, reference), 1)...)
		}
		r.row(cells...)
	}
}

func (c *cluster) newSpeaker(t *testing.T, driver string) *speaker {
	t.Helper()
	job := gpuJob("bench-logs-"+driver, 0, byDriver(driver), running(writer), with(func(task *api.Task) {
		task.LogConfig = &api.LogConfig{MaxFiles: ptr(1), MaxFileSizeMB: ptr(logFileMB)}
		task.SetConfig("logging", []map[string]any{{
			"type": "json-file", "config": []map[string]any{{"max-size": fmt.Sprintf("%dm", logFileMB), "max-file": "1"}},
		}})
	}))
	job.TaskGroups[0].EphemeralDisk = &api.EphemeralDisk{SizeMB: ptr(logFileMB + 100)}
	alloc := c.start(t, job)
	return &speaker{driver: driver, dir: filepath.Join(c.run, "nomad/alloc", alloc.ID, "alloc")}
}

// speak makes the task write its lines once more and returns how long that took.
func (s *speaker) speak(t *testing.T) time.Duration {
	t.Helper()
	must.NoError(t, os.WriteFile(filepath.Join(s.dir, "data", fmt.Sprintf("go.%d", s.rounds)), nil, 0o600))
	s.rounds++
	begun := time.Now()
	for s.written(t) < int64(s.rounds)*bytesARound {
		must.Less(t, logRoundTime, time.Since(begun), must.Sprintf("%s: %d bytes have arrived", s.driver, s.written(t)))
		time.Sleep(2 * time.Millisecond)
	}
	return time.Since(begun)
}

// written returns the size of the task's output in Nomad's log file.
func (s *speaker) written(t *testing.T) int64 {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.dir, "logs", "bench-logs-"+s.driver+".stdout.*"))
	must.NoError(t, err)
	size := int64(0)
	for _, file := range files {
		info, err := os.Stat(file)
		must.NoError(t, err)
		size += info.Size()
	}
	return size
}
