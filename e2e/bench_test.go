// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e && bench

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"
)

// The benchmarks compare the driver with Nomad's built-in one, on the same agent and in
// turns, since only the ratio is valid on another machine. They fail if a limit is
// exceeded; the short form has too few rounds for that.

// The two drivers that are compared.
const (
	builtIn = "docker"
	ours    = "gpu-docker"
)

// byDriver chooses the driver that runs the job.
func byDriver(name string) option {
	return with(func(task *api.Task) { task.Driver = name })
}

// running makes the task run a shell script.
func running(script string) option {
	return with(func(task *api.Task) { task.SetConfig("args", []string{"-c", script}) })
}

// rounds is the number of measurements: full, or a few in the short form.
func rounds(full, short int) int {
	if testing.Short() {
		return short
	}
	return full
}

// report prints one table of figures, to be compared by eye and by its limits.
type report struct {
	t     *testing.T
	table *tabwriter.Writer
}

func newReport(t *testing.T, title string, columns ...string) *report {
	fmt.Printf("\n%s\n", title)
	r := &report{t, tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)}
	t.Cleanup(func() { must.NoError(t, r.table.Flush()) })
	r.row(columns...)
	return r
}

// row prints one line; its last cells may be missing.
func (r *report) row(cells ...string) {
	_, err := fmt.Fprintln(r.table, strings.Join(cells, "\t")+"\t")
	must.NoError(r.t, err)
}

// atMost returns the cells for a ratio and its limit, and fails the test above the limit.
func (r *report) atMost(ratio, limit float64) []string {
	if ratio > limit && !testing.Short() {
		load, _ := os.ReadFile("/proc/loadavg")
		r.t.Errorf("%.3f times Nomad's own driver, and at most %.2f is wanted (load average %.14s; if the machine is busy, repeat)",
			ratio, limit, load)
	}
	return []string{fmt.Sprintf("%.3f", ratio), fmt.Sprintf("%.2f", limit)}
}

// quantile returns the q-th part of the times from below: 0.5 is the median.
func quantile(times []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func ratio[N ~int | ~int64 | ~uint64](a, b N) float64 { return float64(a) / float64(b) }

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.0f ms", d.Seconds()*1e3) }

// endAll removes the job and waits until the engine has no container left, so that
// the next one is measured alone.
func (c *cluster) endAll(t *testing.T, job string) {
	t.Helper()
	c.remove(t, job)
	eventually(t, 5*time.Minute, "no container is left", func() error {
		left, err := c.cri.List(t.Context(), nil)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%d are", len(left))
		}
		return err
	})
}
