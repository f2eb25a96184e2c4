// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"bytes"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/storetest"
	"nomad-gpu-mem/internal/tableconfig"
)

// now is the time at which all tests read their table.
var now = time.Date(2026, time.March, 14, 15, 9, 26, 0, time.UTC)

const (
	a10    = allocator.GPUID("GPU-4f1a9c2e-8c1b-4e0a-9d53-1c2f0e6b7a80")
	a10two = allocator.GPUID("GPU-5b0c7d11-0a4e-4f6f-8a57-6f6a3b9d2e01")
	h100   = allocator.GPUID("GPU-c0ffee00-3d2b-4b7c-b0de-9a8b7c6d5e4f")
	mig    = allocator.GPUID("MIG-GPU-c0ffee00-3d2b-4b7c-b0de-9a8b7c6d5e4f/1/0")
	lost   = allocator.GPUID("GPU-dead0000-1111-4222-8333-444455556666")
)

// world is a table in memory, and the commands on it.
type world struct {
	*storetest.Memory
	env map[string]string
}

func newWorld() *world { return &world{Memory: storetest.NewMemory()} }

// Close keeps the table: several commands read it in turn.
func (w *world) Close() error { return nil }

// put writes a raw value.
func (w *world) put(t *testing.T, key, value string) {
	entry, err := w.Get(t.Context(), key)
	must.NoError(t, err)
	must.NoError(t, w.Apply(t.Context(), []allocator.Write{{Key: key, Value: []byte(value), Version: entry.Version}}))
}

// run runs a command and returns what it did.
func (w *world) run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = w.app().Run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func (w *world) app() App {
	return App{
		OpenTable: func(tableconfig.Config) (*allocator.Table, error) {
			return allocator.NewTable(w, allocator.WithClock(func() time.Time { return now })), nil
		},
		Getenv: func(name string) string { return w.env[name] },
		Now:    func() time.Time { return now },
		Pace:   time.Millisecond,
	}
}

// builder fills a store through a table, as the plugins do.
type builder struct {
	t     *testing.T
	store *world
	clock time.Time
}

func (b *builder) ago(d time.Duration) *builder {
	b.clock = now.Add(-d)
	return b
}

func (b *builder) table() *allocator.Table {
	return allocator.NewTable(b.store, allocator.WithClock(func() time.Time { return b.clock }))
}

func (b *builder) node(name allocator.NodeName, driver, address string) {
	must.NoError(b.t, b.table().PutNode(b.t.Context(),
		allocator.NodeState{Name: name, Version: "0.1.0", Driver: driver, Address: address}))
}

func (b *builder) gpu(id allocator.GPUID, state allocator.GPUState) {
	must.NoError(b.t, b.table().PutGPU(b.t.Context(), id, state))
}

func (b *builder) claim(owner allocator.Owner, booking allocator.Booking) {
	must.NoError(b.t, b.table().Claim(b.t.Context(), owner, allocator.Attempt{ID: "attempt-1"}, []allocator.Booking{booking}))
}

func (b *builder) running(owner allocator.Owner, container string, gpu allocator.GPUID) {
	must.NoError(b.t, b.table().Running(b.t.Context(), owner, "attempt-1", container, []allocator.GPUID{gpu}))
}

func units(first, count int) allocator.UnitSet {
	var set allocator.UnitSet
	for i := range count {
		set = append(set, first+i)
	}
	return set
}

// nodeID is Nomad's ID of all nodes.
const nodeID = "9c7d3a10-66b2-4b2b-8f7a-0d1e2f3a4b5c"

func owner(job, task, alloc string, node allocator.NodeName) allocator.Owner {
	return allocator.Owner{
		Namespace: "default", Job: job, Group: "main", Task: task,
		Alloc: alloc + "-5f0e-4e6b-9a3c-2d1b0c9f8e7d", Node: nodeID, NodeName: node,
	}
}

// cluster is a table with everything that status can show.
func cluster(t *testing.T) *world {
	b := &builder{t: t, store: newWorld()}
	b.ago(10 * 24 * time.Hour)
	b.gpu(a10, allocator.GPUState{Node: "gpu-node-1", Model: "NVIDIA A10", MemoryMiB: 23028, ReservedMiB: 512, UsedMiB: 8312, UnitMiB: 1024, Units: 21})
	b.gpu(a10two, allocator.GPUState{Node: "gpu-node-1", Model: "NVIDIA A10", Index: 1, MemoryMiB: 23028, UsedMiB: 200, UnitMiB: 1024, Units: 22,
		Health: "NVML call does not return", Unhealthy: units(0, 22)})
	b.gpu(h100, allocator.GPUState{Node: "gpu-node-2", Model: "NVIDIA H100 80GB HBM3", MemoryMiB: 81559, ReservedMiB: 551, UsedMiB: 61440, UnitMiB: 512, Units: 158})
	b.gpu(mig, allocator.GPUState{Node: "gpu-node-2", Model: "NVIDIA H100 80GB HBM3 MIG 1g.10gb", Index: 1, MemoryMiB: 9856, UnitMiB: 1024, Units: 9,
		Health: "1 unit is in use unmanaged", Unhealthy: units(8, 1)})

	web := owner("chat", "serve", "1b2c3d4e", "gpu-node-1")
	b.ago(26*time.Hour).claim(web, allocator.Booking{GPU: a10, UnitMiB: 1024, Of: 21, Units: units(0, 4)})
	b.running(web, "9f8e7d6c5b4a39281706", a10)
	b.ago(9*time.Second).claim(owner("fine-tuning-of-the-large-model", "train", "77aa66bb", "gpu-node-1"),
		allocator.Booking{GPU: a10, UnitMiB: 1024, Of: 21, Units: units(6, 6)})

	batch := owner("embed", "worker", "0a1b2c3d", "gpu-node-2")
	batch.Namespace = "batch"
	b.ago(50*time.Minute).claim(batch, allocator.Booking{GPU: h100, UnitMiB: 512, Of: 158, Units: units(0, 80)})
	b.running(batch, "31415926535897932384", h100)
	small := owner("probe", "probe", "5e6f7a8b", "gpu-node-2")
	b.claim(small, allocator.Booking{GPU: h100, UnitMiB: 512, Of: 158, Units: allocator.NewUnitSet(80, 90, 91, 157)})
	b.running(small, "27182818284590452353", h100)

	b.claim(owner("orphan", "left", "deadbeef", "gpu-node-3"),
		allocator.Booking{GPU: lost, UnitMiB: 1024, Of: 15, Units: units(3, 5)})

	b.ago(12*time.Second).node("gpu-node-1", "550.54.15", "10.0.0.11")
	b.ago(5*time.Minute).node("gpu-node-2", "570.86.10", "10.0.0.12")
	b.ago(3*time.Second).node("gpu-node-4", "", "10.0.0.14")
	return b.store
}
