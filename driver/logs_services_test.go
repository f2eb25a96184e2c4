// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package driver

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/driver/logpipe/logpipetest"
)

// gulp reads a pipe until the test ends, and counts.
func gulp(t *testing.T, path string) *atomic.Int64 {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0) // needs no writer
	must.NoError(t, err)
	var count atomic.Int64
	var reading sync.WaitGroup
	reading.Go(func() {
		buf := make([]byte, 1<<16)
		for {
			n, err := file.Read(buf)
			count.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		_ = file.Close()
		reading.Wait()
	})
	return &count
}

// A task that writes as fast as it can does not hold up the lines of another.
func TestServiceAFloodHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	d := w.boot()
	flood, _ := w.script(`exec yes "$(head -c 99 /dev/zero | tr '\0' x)"`, ``)
	flood.StdoutPath = logpipetest.Mkfifo(t)
	flooded := gulp(t, flood.StdoutPath)
	d.run(t, flood)
	quiet, out := w.script(`while true; do until [ -e /local/ask ]; do sleep 0.02; done; rm /local/ask; echo answer; done`, ``)
	d.run(t, quiet)

	const enough = 8 << 20
	began := time.Now()
	for asked := 1; asked <= 5 || flooded.Load() < enough; asked++ {
		must.NoError(t, os.WriteFile(filepath.Join(quiet.TaskDir().LocalDir, "ask"), nil, 0o600))
		sent := time.Now()
		eventually(t, func() bool { return strings.Count(out.Got(), "answer\n") == asked })
		must.Less(t, 20*time.Second, time.Since(sent))
	}
	t.Logf("flood: %d MB/s", flooded.Load()/(1+time.Since(began).Milliseconds())/1000)
	must.NoError(t, d.DestroyTask(flood.ID, true))
}

// Docker rotates its own files under what is being read, and may read one of them
// twice. If no more is written at once than its files hold, nothing is lost either.
func TestServiceLogsOverRotation(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	d := w.boot()
	const rounds, each = 20, 5_000 // 400 KB in Docker's files a round, of which it keeps 4 MB
	task, out := w.script(fmt.Sprintf(`r=0; while [ $r -lt %d ]; do
		until [ -e /local/$r ]; do sleep 0.02; done
		seq $((r*%d+1)) $(((r+1)*%d)) | sed 's/^/line /'; r=$((r+1)); done`, rounds, each, each), ``)
	d.run(t, task)
	for r := range rounds {
		must.NoError(t, os.WriteFile(filepath.Join(task.TaskDir().LocalDir, strconv.Itoa(r)), nil, 0o600))
		eventually(t, func() bool { return strings.HasSuffix(out.Got(), fmt.Sprintf("line %d\n", (r+1)*each)) })
	}
	must.True(t, d.ended(t, task).Successful())
	got := strings.Split(strings.TrimSuffix(out.Got(), "\n"), "\n")
	for i, line := range got {
		must.Eq(t, fmt.Sprintf("line %d", i+1), line)
	}
	must.Eq(t, rounds*each, len(got))
}
