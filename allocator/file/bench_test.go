//go:build bench

package file_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/file"
)

// maxClaim is how long a claim in a file may take, fsync included.
const maxClaim = 2 * time.Millisecond

func ownerOf(n int) allocator.Owner {
	return allocator.Owner{
		Namespace: "default", Job: "job", Group: "group", Task: "task", Alloc: fmt.Sprintf("%08x-5f0e-4e6b-9a3c-2d1b0c9f8e7d", n),
		Node: "9c7d3a10-66b2-4b2b-8f7a-0d1e2f3a4b5c", NodeName: "gpu-node-1",
	}
}

func gpuOf(n int) allocator.GPUID { return allocator.GPUID(fmt.Sprint("GPU-", n%8)) }

// A busy node of eight GPUs has some 40 tasks; ten times as many show what the
// size of the file costs.
func TestBench_file(t *testing.T) {
	must.LessEq(t, maxClaim, medianClaim(t, 40))
	medianClaim(t, 400)
}

// medianClaim is the time of a claim where so many tasks are, and as many end as
// start.
func medianClaim(t *testing.T, busy int) time.Duration {
	table := allocator.NewTable(file.New(newPath(t)))
	var times []time.Duration
	for n := range busy + 400 {
		if n >= busy {
			old := n - busy
			must.NoError(t, table.Release(t.Context(), ownerOf(old), "attempt", []allocator.GPUID{gpuOf(old)}))
		}
		owner := ownerOf(n)
		booking := allocator.Booking{GPU: gpuOf(n), UnitMiB: 1024, Of: 80, Units: allocator.NewUnitSet(n / 8 % 80)}
		begun := time.Now()
		must.NoError(t, table.Claim(t.Context(), owner, allocator.Attempt{ID: "attempt"}, []allocator.Booking{booking}))
		if n >= busy {
			times = append(times, time.Since(begun))
		}
	}
	slices.Sort(times)
	p50, p99 := times[len(times)/2], times[len(times)*99/100]
	t.Logf("claim p50 %v (at most %v with 40), p99 %v, with %d claims on 8 GPUs", p50, maxClaim, p99, busy)
	return p50
}
