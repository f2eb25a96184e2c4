// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/storetest"
)

// example is a value with its key in docs/consul-kv.md.
var example = regexp.MustCompile("(?s)At `gpu-mem/([^`]+)`:\n\n```json\n(.*?)```")

// The examples are what the table writes, byte for byte but for white space, and
// every field in them is explained.
func TestConsulKVExamples(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/consul-kv.md")
	must.NoError(t, err)
	documented := map[string]string{}
	for _, match := range example.FindAllStringSubmatch(string(text), -1) {
		documented[match[1]] = match[2]
	}
	store := exampleTable(t)
	entries, _, err := store.Watch(t.Context(), 0)
	must.NoError(t, err)
	must.MapLen(t, len(entries), documented)
	for _, entry := range entries {
		var want bytes.Buffer
		must.NoError(t, json.Compact(&want, []byte(documented[entry.Key])), must.Sprint(entry.Key))
		must.Eq(t, want.String(), string(entry.Value))
	}
	for _, field := range regexp.MustCompile(`"([a-z_]{2,})":`).FindAllStringSubmatch(string(text), -1) {
		must.True(t, explained(string(text), field[1]), must.Sprintf("field %s is not explained", field[1]))
	}
}

// explained reports whether the field has a row in a table of the text.
func explained(text, field string) bool {
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) > 2 && strings.Contains(cells[1], "`"+field+"`") {
			return true
		}
	}
	return false
}

// exampleTable makes the table of the examples, as the plugins do.
func exampleTable(t *testing.T) allocator.Store {
	store := storetest.NewMemory()
	now := time.Date(2026, time.March, 14, 15, 9, 26, 0, time.UTC)
	table := allocator.NewTable(store, allocator.WithClock(func() time.Time { return now }))
	const gpu = allocator.GPUID("GPU-4f1a9c2e-8c1b-4e0a-9d53-1c2f0e6b7a80")

	must.NoError(t, table.PutNode(t.Context(), allocator.NodeState{
		Name: "gpu-node-1", Version: "0.1.0", Driver: "550.54.15", Address: "10.0.0.11", GPUs: []allocator.GPUID{gpu},
		Boot: "0b7a2a4e-1f0d-4a55-9d0f-6f1f8f4f2c11", StartedAt: time.Date(2026, time.March, 12, 8, 30, 11, 0, time.UTC),
	}))
	must.NoError(t, table.PutGPU(t.Context(), gpu, allocator.GPUState{
		Node: "gpu-node-1", Model: "NVIDIA A10", MemoryMiB: 23028, ReservedMiB: 512, UsedMiB: 9300,
		UnitMiB: 1024, Units: 21,
	}))
	must.NoError(t, table.Cordon(t.Context(), gpu, "fan is to be replaced"))
	must.NoError(t, table.PutProfile(t.Context(), "resnet50", allocator.Profile{
		About: "training, fp16", BaseMiB: 1500, MiBPer: map[string]float64{"batch": 120.5}, MinMiB: 2048, MaxMiB: 24576,
	}))
	model := allocator.Owner{
		Namespace: "default", Job: "chat", Group: "serve", Task: "model", Alloc: "1b2c3d4e-5f0e-4e6b-9a3c-2d1b0c9f8e7d",
		Node: "9c7d3a10-66b2-4b2b-8f7a-0d1e2f3a4b5c", NodeName: "gpu-node-1",
	}
	worker := model
	worker.Job, worker.Group, worker.Task, worker.Alloc = "embed", "batch", "worker", "77aa66bb-0d1e-4f2a-8b3c-4d5e6f708192"
	first, second := model.Alloc+"/model/7aa3c0de", worker.Alloc+"/worker/1f2e3d4c"
	const engine = "3f0c7d52-1e0b-4c4f-9f0e-6a1b2c3d4e5f"
	booking := allocator.Booking{GPU: gpu, UnitMiB: 1024, Of: 21, Units: allocator.NewUnitSet(0, 1, 2, 3)}
	must.NoError(t, table.Claim(t.Context(), model, allocator.Attempt{ID: first, Begun: now.Add(-2 * time.Second), Engine: engine}, []allocator.Booking{booking}))
	booking.Units = allocator.NewUnitSet(4, 5, 6, 7, 8, 9)
	must.NoError(t, table.Claim(t.Context(), worker, allocator.Attempt{ID: second, Begun: now.Add(-time.Second), Engine: engine}, []allocator.Booking{booking}))
	container := "9f8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c5b4a39281706f5e4d3c2b1a0"
	must.NoError(t, table.Running(t.Context(), model, first, container, []allocator.GPUID{gpu}))
	return store
}

// No card has 16 GiB: cards sold as such have between 15109 and 16376 MiB. So an example
// compares memory in MiB, with less than the size by which a card is sold.
func TestExamplesCompareMemoryInMiB(t *testing.T) {
	t.Parallel()
	inGiB := regexp.MustCompile(`(?s)\$\{device\.attr\.memory\}[^}]{0,200}"\d+ ?(GiB|GB|G)"`)
	var seen int
	for _, dir := range []string{"docs", "example", "README.md"} {
		must.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".md" && filepath.Ext(path) != ".hcl" {
				return err
			}
			text, err := os.ReadFile(path)
			must.False(t, inGiB.Match(text), must.Sprint(path))
			seen++
			return err
		}))
	}
	must.Greater(t, 10, seen)
}
