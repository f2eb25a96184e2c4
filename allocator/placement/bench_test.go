// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package placement_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator/placement"
)

// BenchmarkChoose measures one decision in a cluster that is nine tenths full,
// where after every decision a task comes and another goes: p50 and p99, and
// the memory that a Placer takes for each GPU once it has seen all kinds of
// tasks.
func BenchmarkChoose(b *testing.B) {
	for _, policy := range []string{placement.DefaultPolicy, "fgd"} {
		for _, size := range []struct{ nodes, gpus int }{{1213, 6212}, {12_500, 100_000}} {
			b.Run(fmt.Sprintf("%s/%d nodes, %d GPUs", policy, size.nodes, size.gpus), func(b *testing.B) {
				benchmarkChoose(b, policy, size.nodes, size.gpus)
			})
		}
	}
}

func benchmarkChoose(b *testing.B, policyName string, nodes, gpus int) {
	policy, err := placement.PolicyNamed(policyName)
	must.NoError(b, err)
	before := heap()
	p := placement.New(policy, 1)
	for i := range nodes {
		p.SetNode(benchNode(i, gpus/nodes+min(1, max(0, gpus%nodes-i))))
	}
	classes := benchClasses(150)
	p.SetDemand(classes)
	random := rand.New(rand.NewPCG(1, 1))
	placed := fillUp(b, p, classes, random, gpus*9/10)
	memory := float64(heap()-before) / float64(gpus)

	var times []time.Duration
	for b.Loop() {
		r := classes[random.IntN(len(classes))].Request
		start := time.Now()
		d, err := p.Choose(r)
		times = append(times, time.Since(start))
		if errors.Is(err, placement.ErrNoRoom) {
			continue
		}
		must.NoError(b, p.Place(d))
		gone := random.IntN(len(placed))
		must.NoError(b, p.Remove(placed[gone]))
		placed[gone] = d
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds()), "p99-ns")
	b.ReportMetric(memory, "B/GPU")
	runtime.KeepAlive(p)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// benchNode has GPUs of 100 units and one of four amounts of CPU.
func benchNode(i, gpus int) placement.Node {
	id := fmt.Sprint("node-", i)
	n := placement.Node{ID: id, Name: id, CPU: gpus * []int{8000, 12_000, 12_000, 24_000}[i%4], MemoryMiB: gpus * 48_000}
	for g := range gpus {
		n.GPUs = append(n.GPUs, placement.GPU{ID: fmt.Sprint(id, "-", g), Model: "H100", UnitMiB: 800, Units: 100, Free: 100})
	}
	return n
}

// benchClasses are kinds of tasks, a third of them for whole GPUs, and some of
// those for several.
func benchClasses(count int) []placement.Class {
	random := rand.New(rand.NewPCG(5, 5))
	classes := make([]placement.Class, count)
	for i := range classes {
		a := placement.Ask{Units: 5 * (1 + random.IntN(18))}
		if i%3 == 0 {
			a = placement.Ask{Whole: true}
		}
		asks := []placement.Ask{a}
		if i%30 == 0 { // several GPUs of a node
			asks = slices.Repeat([]placement.Ask{{Whole: true, Apart: "task"}}, []int{2, 4, 5, 8}[i/30%4])
		}
		classes[i] = placement.Class{
			Request: placement.Request{CPU: 500 * (1 + random.IntN(30)), MemoryMiB: 1000 * random.IntN(60), Asks: asks},
			Weight:  1 + 20*random.Float64(),
		}
	}
	return classes
}

// fillUp places tasks of all kinds until they hold about as many GPUs.
func fillUp(b *testing.B, p *placement.Placer, classes []placement.Class, random *rand.Rand, gpus int) []placement.Decision {
	b.Helper()
	var placed []placement.Decision
	for units := 0; units < gpus*100; {
		d, err := p.Choose(classes[random.IntN(len(classes))].Request)
		if errors.Is(err, placement.ErrNoRoom) {
			break
		}
		must.NoError(b, err)
		must.NoError(b, p.Place(d))
		for _, s := range d.Slices {
			units += s.Units
		}
		placed = append(placed, d)
	}
	return placed
}
