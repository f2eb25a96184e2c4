// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mattn/go-runewidth"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/status"
)

var update = flag.Bool("update", false, "write the golden files")

func TestStatus(t *testing.T) {
	t.Parallel()
	tests := []struct {
		golden string
		store  func(*testing.T) *world
		args   []string
		code   int
	}{
		{golden: "cluster-80.txt", store: cluster},
		{golden: "cluster-120.txt", store: cluster, args: []string{"--width=120"}},
		{golden: "cluster.json", store: cluster, args: []string{"--json"}},
		{golden: "node.txt", store: cluster, args: []string{"--node=gpu-node-1"}},
		{golden: "gpu.txt", store: cluster, args: []string{"--gpu=MIG-"}},
		{golden: "problems.txt", store: damaged, code: ExitUnreadable},
		{golden: "problems.json", store: damaged, args: []string{"--json"}, code: ExitUnreadable},
		{golden: "empty.txt", store: func(*testing.T) *world { return newWorld() }},
	}
	for _, tc := range tests {
		t.Run(tc.golden, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := tc.store(t).run(t, append([]string{"status"}, tc.args...)...)
			must.Eq(t, "", stderr)
			must.Eq(t, tc.code, code)
			golden(t, tc.golden, stdout)
		})
	}
}

// damaged is a table with values that cannot be read.
func damaged(t *testing.T) *world {
	store := cluster(t)
	store.put(t, allocator.ClaimsKey(a10), `{"version": 7}`)
	store.put(t, allocator.NodeKey("gpu-node-9"), "not JSON")
	return store
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		must.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	must.NoError(t, err)
	must.Eq(t, string(want), got)
}

func TestStatusFitsWidth(t *testing.T) {
	t.Parallel()
	store := cluster(t)
	columns := runewidth.Condition{StrictEmojiNeutral: true}
	for width := 80; width < 300; width += 7 {
		_, stdout, _ := store.run(t, "status", fmt.Sprintf("--width=%d", width))
		for line := range strings.Lines(stdout) {
			must.LessEq(t, width, columns.StringWidth(strings.TrimRight(line, "\n")), must.Sprint(line))
		}
	}
}

func TestStatusTotalsAddUp(t *testing.T) {
	t.Parallel()
	_, stdout, _ := cluster(t).run(t, "status", "--json")
	var report status.Report
	must.NoError(t, json.Unmarshal([]byte(stdout), &report))
	var sum status.Memory
	for _, node := range report.Nodes {
		var ofNode status.Memory
		for _, gpu := range node.GPUs {
			must.Eq(t, gpu.OfferedMiB, gpu.ClaimedMiB+gpu.FreeMiB+gpu.UnavailableMiB)
			var claimed uint64
			for _, claim := range gpu.Claims {
				must.Eq(t, claim.UnitCount, strings.Count(gpu.Map, claim.Mark))
				claimed += claim.MiB
			}
			must.Eq(t, claimed, gpu.ClaimedMiB)
			ofNode.Add(gpu.Memory)
		}
		must.Eq(t, ofNode, node.Memory)
		sum.Add(ofNode)
	}
	must.Eq(t, sum, report.Total.Memory)
}

// A filter with an unknown name is an error: an empty report would look like "all free".
func TestStatusFilterWithoutMatch(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := cluster(t).run(t, "status", "--node=gpu-node-7")
	must.Eq(t, ExitFailure, code)
	must.Eq(t, "", stdout)
	must.StrContains(t, stderr, "gpu-node-7")
}

// A GPU that is offered in new units while old claims exist has nothing free, and status says why.
func TestStatusUnitMismatch(t *testing.T) {
	t.Parallel()
	b := &builder{t: t, store: newWorld(), clock: now}
	b.claim(owner("old", "task", "1b2c3d4e", "n"), allocator.Booking{GPU: a10, UnitMiB: 512, Of: 8, Units: units(0, 2)})
	b.gpu(a10, allocator.GPUState{Node: "n", MemoryMiB: 4096, UnitMiB: 1024, Units: 4})
	snapshot, err := b.table().Snapshot(t.Context())
	must.NoError(t, err)
	gpu := status.Of(snapshot, status.Filter{}, now).Nodes[0].GPUs[0]
	must.Eq(t, "aa!!!!!!", gpu.Map)
	must.Eq(t, status.Memory{WholeMiB: 4096, OfferedMiB: 4096, ClaimedMiB: 1024, UnavailableMiB: 3072}, gpu.Memory)
	must.StrContains(t, gpu.Notes[0], "1024 MiB now")
}

// Free units of a dead node are unavailable, not free.
func TestStatusCountsNothingOfADeadNodeAsFree(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]string{
		"lease lost":           `{"name":"n","version":"1","last_seen":"2026-03-14T15:09:00Z","lease_seconds":90}`,
		"silent, never leased": `{"name":"n","version":"1","last_seen":"2026-03-14T14:00:00Z"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &builder{t: t, store: newWorld(), clock: now}
			b.claim(owner("job", "task", "1b2c3d4e", "n"), allocator.Booking{GPU: a10, UnitMiB: 1024, Of: 4, Units: units(0, 2)})
			b.gpu(a10, allocator.GPUState{Node: "n", MemoryMiB: 4096, UnitMiB: 1024, Units: 4})
			b.store.put(t, allocator.NodeKey("n"), state)
			snapshot, err := b.table().Snapshot(t.Context())
			must.NoError(t, err)
			must.Eq(t, status.Memory{WholeMiB: 4096, OfferedMiB: 4096, ClaimedMiB: 2048, UnavailableMiB: 2048},
				status.Of(snapshot, status.Filter{}, now).Total.Memory)
			_, text, _ := b.store.run(t, "status")
			must.StrContains(t, text, "n  dead, seen")
		})
	}
}

// A GPU that was divided into MIG instances counts once: as its instances.
func TestStatusCountsAGPUInMIGModeOnce(t *testing.T) {
	t.Parallel()
	for name, parent := range map[string]allocator.GPUState{
		"its state says so": {Node: "n", MemoryMiB: 81559, UsedMiB: 300, UnitMiB: 1024, Health: "MIG is enabled: only instances can be used"},
		"its state is old":  {Node: "n", MemoryMiB: 81559, UsedMiB: 300, UnitMiB: 1024, Units: 79},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &builder{t: t, store: newWorld(), clock: now}
			b.gpu(h100, parent)
			b.gpu(mig, allocator.GPUState{Node: "n", MemoryMiB: 9856, UnitMiB: 1024, Units: 9})
			gpus := []allocator.GPUID{mig}
			if parent.Units == 0 {
				gpus = append(gpus, h100)
			}
			must.NoError(t, b.table().PutNode(t.Context(), allocator.NodeState{Name: "n", GPUs: gpus}))
			snapshot, err := b.table().Snapshot(t.Context())
			must.NoError(t, err)
			must.Eq(t, status.Memory{WholeMiB: 9856, OfferedMiB: 9216, FreeMiB: 9216}, status.Of(snapshot, status.Filter{}, now).Total.Memory)
		})
	}
}

// After reserved_memory or memory_unit changed, old claims do not add units
// that are no longer there.
func TestStatusOffersNoMoreThanThereIs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		offered allocator.GPUState
		want    string
	}{
		"fewer units":             {allocator.GPUState{Units: 4, UnitMiB: 512}, "aa.."},
		"fewer than are claimed":  {allocator.GPUState{Units: 1, UnitMiB: 512}, "aa"},
		"larger units, and fewer": {allocator.GPUState{Units: 3, UnitMiB: 1024}, "aa!!!!"},
		"of an unknown node":      {allocator.GPUState{Node: "gone-node", Units: 4, UnitMiB: 512}, "aa!!"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &builder{t: t, store: newWorld(), clock: now}
			b.claim(owner("old", "task", "1b2c3d4e", "n"), allocator.Booking{GPU: a10, UnitMiB: 512, Of: 8, Units: units(0, 2)})
			b.node("n", "550.54.15", "10.0.0.11")
			if c.offered.Node == "" {
				c.offered.Node = "n"
			}
			b.gpu(a10, c.offered)
			snapshot, err := b.table().Snapshot(t.Context())
			must.NoError(t, err)
			must.Eq(t, c.want, status.Of(snapshot, status.Filter{Node: c.offered.Node}, now).Nodes[0].GPUs[0].Map)
		})
	}
}

// A reservation does not account for use of memory, and a holder outside Nomad has no namespace.
func TestStatusOfUseBesideAReservation(t *testing.T) {
	t.Parallel()
	b := &builder{t: t, store: newWorld(), clock: now}
	b.gpu(a10, allocator.GPUState{Node: "n", MemoryMiB: 23028, UsedMiB: allocator.IdleMiB + 700, UnitMiB: 1024, Units: 21})
	room := allocator.UnitRequest{GPU: a10, UnitMiB: 1024, TotalUnits: 21, Count: 4}
	must.NoError(t, b.table().Reserve(t.Context(), owner("chat", "serve", "plan-1", ""), time.Minute, []allocator.UnitRequest{room}))
	person := allocator.Owner{Job: outsideJob, Task: "ada", Alloc: "hold-1a2b3c4d"}
	must.NoError(t, b.table().Request(t.Context(), person, time.Hour, room))
	_, text, _ := b.store.run(t, "status")
	must.StrContains(t, text, "! 700 MiB more in use than claimed")
	must.StrContains(t, text, "ada (outside Nomad)")
	must.StrContains(t, text, " chat/main/serve")
}

// Names come from a store that others write: they must not reach the terminal
// as commands.
func TestStatusCleansNames(t *testing.T) {
	t.Parallel()
	b := &builder{t: t, store: newWorld(), clock: now}
	b.node("evil\x1b[2J", "\x1b]0;title\a", "\r\n")
	b.claim(owner("job\x1b[31m", "t\n", "\x1b[2Jabcd", "n\x1b[0m"), allocator.Booking{GPU: "GPU-\x1b[H", UnitMiB: 1, Of: 1, Units: units(0, 1)})
	b.store.put(t, "nodes/x", "\x1b[2J")
	_, stdout, _ := b.store.run(t, "status")
	must.StrNotContains(t, stdout, "\x1b")
	must.StrNotContains(t, stdout, "\r")
}

func TestStatusWatch(t *testing.T) {
	t.Parallel()
	store := cluster(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	read, write := io.Pipe()
	done := make(chan int, 1)
	go func() {
		done <- store.app().Run(ctx, []string{"status", "--watch", "--json"}, write, io.Discard)
		_ = write.Close()
	}()
	lines := json.NewDecoder(read)
	var first, second status.Report
	must.NoError(t, lines.Decode(&first))
	b := &builder{t: t, store: store, clock: now}
	b.node("gpu-node-5", "570.86.10", "10.0.0.15")
	must.NoError(t, lines.Decode(&second))
	must.Eq(t, first.Total.Nodes+1, second.Total.Nodes)
	must.Greater(t, first.Version, second.Version)
	stop()
	must.Eq(t, ExitOK, <-done)
}

// status --watch retries while the table is unavailable.
func TestStatusWatchSurvivesOutage(t *testing.T) {
	t.Parallel()
	store := newWorld()
	store.put(t, "unknown/key", "{}")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	read, stderr := io.Pipe()
	done := make(chan int, 1)
	breakingOut := writerFunc(func(p []byte) (int, error) { // fails right after the first picture
		store.Fail(fmt.Errorf("connection refused: %w", allocator.ErrUnavailable))
		return len(p), nil
	})
	go func() { done <- store.app().Run(ctx, []string{"status", "--watch"}, breakingOut, stderr) }()
	said := make([]byte, 4096)
	n, err := read.Read(said)
	must.NoError(t, err)
	must.StrContains(t, string(said[:n]), "connection refused")
	go func() { _, _ = io.Copy(io.Discard, read) }()
	stop()
	must.Eq(t, ExitOK, <-done)
	must.NoError(t, stderr.Close())
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestOutputError(t *testing.T) {
	t.Parallel()
	full := writerFunc(func([]byte) (int, error) { return 0, errors.New("disk is full") })
	var stderr bytes.Buffer
	code := cluster(t).app().Run(t.Context(), []string{"status"}, full, &stderr)
	must.Eq(t, ExitFailure, code)
	must.StrContains(t, stderr.String(), "disk is full")
}

// A node without its lease is dead, which frees nothing.
func TestStatus_of_a_dead_node(t *testing.T) {
	t.Parallel()
	w := cluster(t)
	w.put(t, allocator.NodeKey("gpu-node-1"), `{"name":"gpu-node-1","version":"0.1.0","driver":"","last_seen":"2026-03-14T15:00:00Z","lease_seconds":90}`)
	_, text, _ := w.run(t, "status", "--node=gpu-node-1")
	must.StrContains(t, text, "gpu-node-1  dead, seen 9m ago")
	must.StrContains(t, text, "2 claims")
}

// Units that are reserved for a task, or held outside Nomad, look like claims.
func TestStatus_of_promised_units(t *testing.T) {
	t.Parallel()
	b := oneGPUTable(t)
	room := allocator.UnitRequest{GPU: a10, UnitMiB: 1024, TotalUnits: 21, Count: 4}
	must.NoError(t, b.table().Reserve(t.Context(), owner("chat", "serve", "plan-1", ""), time.Minute, []allocator.UnitRequest{room}))
	must.NoError(t, b.table().Request(t.Context(), owner("outside Nomad", "ada", "hold-1", ""), time.Hour, room))
	_, text, _ := b.store.run(t, "status")
	must.StrContains(t, text, "reserved")
	must.StrContains(t, text, "requested")
	must.StrContains(t, text, "free 13312 MiB")
}

// status names a node without NVML, and a GPU that became smaller.
func TestStatusNamesFaultsOfHardware(t *testing.T) {
	t.Parallel()
	w := cluster(t)
	node := allocator.NodeState{Name: "gpu-node-9", Fault: "Driver/library version mismatch", GPUs: []allocator.GPUID{}}
	table := allocator.NewTable(w, allocator.WithClock(func() time.Time { return now }))
	must.NoError(t, table.PutNode(t.Context(), node))
	_, stdout, _ := w.run(t, "status", "--node=gpu-node-9")
	must.StrContains(t, stdout, "its GPUs cannot be read: Driver/library version mismatch")
	_, stdout, _ = w.run(t, "status", "--json", "--node=gpu-node-9")
	must.StrContains(t, stdout, `"fault": "Driver/library version mismatch"`)

	state, err := table.State(t.Context(), a10)
	must.NoError(t, err)
	state.MemoryMiB, state.Units = state.ReservedMiB+1024, 1
	must.NoError(t, table.PutGPU(t.Context(), a10, state))
	_, stdout, _ = w.run(t, "status", "--json", "--gpu="+string(a10))
	must.StrContains(t, stdout, "its claims exceed its offered memory by")
}
