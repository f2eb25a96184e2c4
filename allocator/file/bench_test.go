// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build bench

package file_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/file"
)

// maxClaim is how long a claim in a file may take, in bare replacements of a file of the
// same size that survive a power cut. Both wait for the same disk in the same run, so a
// busy machine slows both.
const maxClaim = 2.0

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
	must.LessEq(t, maxClaim, claimRatio(t, 40))
	claimRatio(t, 400)
}

// claimRatio measures claims where so many tasks are, and as many end as start, beside
// bare replacements of the table's file.
func claimRatio(t *testing.T, busy int) float64 {
	path := newPath(t)
	table := allocator.NewTable(file.New(path))
	var claims, bare []time.Duration
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
			claims = append(claims, time.Since(begun))
			bare = append(bare, bareReplacement(t, path))
		}
	}
	slices.Sort(claims)
	slices.Sort(bare)
	// The quick quarter of each: the rest tells more of the machine's other work.
	ratio := float64(claims[len(claims)/4]) / float64(bare[len(bare)/4])
	t.Logf("bare replacement p50 %v; claim p50 %v p99 %v; quick quarter: %.2f (at most %.1f with 40), with %d claims on 8 GPUs",
		bare[len(bare)/2], claims[len(claims)/2], claims[len(claims)*99/100], ratio, maxClaim, busy)
	return ratio
}

// bareReplacement writes the file's content to another file, flushes it, and gives it its
// final name.
func bareReplacement(t *testing.T, path string) time.Duration {
	t.Helper()
	text, err := os.ReadFile(path)
	must.NoError(t, err)
	begun := time.Now()
	f, err := os.Create(path + ".bare.next")
	must.NoError(t, err)
	_, err = f.Write(text)
	must.NoError(t, errors.Join(err, f.Sync(), f.Close()))
	must.NoError(t, os.Rename(f.Name(), path+".bare"))
	dir, err := os.Open(filepath.Dir(path))
	must.NoError(t, err)
	must.NoError(t, errors.Join(dir.Sync(), dir.Close()))
	return time.Since(begun)
}
