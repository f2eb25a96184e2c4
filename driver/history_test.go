// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"
	"github.com/shoenig/test/wait"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/attempt"
	"nomad-gpu-mem/driver/label"
)

// Whatever crashes, fails or hangs, in whatever order: at every moment at most one running
// container uses a unit, and once all is quiet every claim has its running container, and
// every such container its claim.
func TestFaultHistories(t *testing.T) {
	t.Parallel()
	histories, length := 12, 450
	if testing.Short() {
		histories, length = 3, 120
	}
	seed := rand.Uint64()
	for n := range histories {
		t.Run(fmt.Sprint("seed ", seed+uint64(n)), func(t *testing.T) {
			t.Parallel()
			newHistory(t, newWorld(t), seed+uint64(n)).run(length)
		})
	}
}

// operation is one thing that can happen on a node.
type operation struct {
	name   string
	weight int
	fault  bool
	do     func(h *history)
}

func operations() []operation {
	return []operation{
		{"place", 24, false, (*history).place},
		{"start again", 12, false, func(h *history) { h.start(h.agent, h.some()) }},
		{"stop", 20, false, func(h *history) { h.stop(h.agent, h.some()) }},
		{"pause", 16, false, func(h *history) { time.Sleep(time.Duration(h.random.IntN(4)) * time.Millisecond) }},
		{"container ends", 6, false, (*history).endContainer},
		{"agent crashes, plugin stays", 5, true, func(h *history) { h.crashAgent(); h.connect(h.agent.plugin) }},
		{"agent crashes and loses its plugin", 2, true, func(h *history) { h.crashAgent(); h.connect(h.bootProcess()) }},
		{"plugin is killed", 4, true, func(h *history) { h.agent.plugin.kill(); h.crashAgent(); h.connect(h.bootProcess()) }},
		{"container is renamed", 4, true, (*history).renameContainer},
		{"removals fail", 4, true, func(h *history) { h.daemon.failNext("Remove", 1+h.random.IntN(4)) }},
		{"starts fail", 3, true, func(h *history) { h.daemon.failNext("Start", 1+h.random.IntN(2)) }},
		{"answers are lost", 4, true, func(h *history) { h.daemon.loseAnswers(1 + h.random.IntN(3)) }},
		{"daemon hangs", 3, true, func(h *history) { h.daemon.hang() }},
		{"daemon recovers", 8, false, func(h *history) { h.daemon.mend() }},
		{"table is unavailable", 3, true, func(h *history) { h.outage(allocator.ErrUnavailable) }},
		{"table recovers", 8, false, func(h *history) { h.outage(nil) }},
		{"claim is lost", 3, true, (*history).loseClaim},
		{"sweep", 6, false, (*history).sweep},
	}
}

// run lets as many operations happen, ends all faults, and looks at what is left.
func (h *history) run(length int) {
	all, total := operations(), 0
	for _, o := range all {
		total += o.weight
	}
	faults := 0
	for range length {
		pick := h.random.IntN(total)
		at := slices.IndexFunc(all, func(o operation) bool { pick -= o.weight; return pick < 0 })
		h.counts[all[at].name]++
		all[at].do(h)
		if all[at].fault {
			faults++
		}
		must.SliceEmpty(h.t, h.daemon.breached(), must.Func(func() string {
			return fmt.Sprint(h.daemon.breached(), " after ", all[at].name, "\n", h.state())
		}))
	}
	h.settle()
	h.t.Logf("consistent: %d operations, %d faults, %d tasks, %d processes", length, faults, len(h.allocs), len(h.processes))
}

// outage is one of the table.
func (h *history) outage(err error) {
	if h.store != nil {
		h.store.Fail(err)
	}
}

func (h *history) endContainer() {
	if running := h.daemon.running(); len(running) > 0 {
		id := running[h.random.IntN(len(running))].ID
		_ = h.daemon.fakeEngine.Stop(h.t.Context(), id, "", 0)
	}
}

// renameContainer gives a container another name, as an operator can.
func (h *history) renameContainer() {
	running := h.daemon.running()
	if len(running) == 0 {
		return
	}
	id := running[h.random.IntN(len(running))].ID
	h.daemon.change(func() {
		if c := h.daemon.containers[id]; c != nil {
			c.Name = "renamed-" + id
		}
	})
}

// loseClaim takes a claim out of the table, as a restored backup does.
func (h *history) loseClaim() {
	snapshot, err := h.table.Snapshot(h.t.Context())
	if err != nil {
		return
	}
	for _, gpu := range snapshot.GPUs {
		for _, claim := range gpu.Claims() {
			if h.random.IntN(3) == 0 {
				_ = h.table.Release(h.t.Context(), claim.Owner, claim.Attempt, []allocator.GPUID{gpu.ID})
			}
		}
	}
}

// sweep does at once what the plugin's loops do after minutes.
func (h *history) sweep() {
	s, err := h.agent.plugin.serving()
	must.NoError(h.t, err)
	late := time.Now().Add(time.Hour)
	s.endForgotten(h.t.Context(), late)
	s.removeAllDangling(h.t.Context(), late)
	s.reaper.Sweep(h.t.Context(), late)
	for _, gpu := range []allocator.GPUID{gpuA, gpuB} {
		_, _ = s.reaper.Reconcile(h.t.Context(), gpu, late)
	}
	h.endSuperseded()
}

// endSuperseded does what the program does with a process that another one has superseded.
func (h *history) endSuperseded() {
	for _, p := range h.processes {
		if p != h.agent.plugin && isClosed(p.Superseded()) {
			p.Shutdown()
		}
	}
}

// settle ends all faults and half of the allocations, and waits until all is as it should
// be. Then it ends the rest.
func (h *history) settle() {
	h.daemon.mend()
	h.outage(nil)
	for n, a := range h.wanted() {
		if n%2 == 0 {
			h.stop(h.agent, a)
		}
	}
	h.becomes("as it should be", h.consistent)
	for _, a := range h.wanted() {
		h.stop(h.agent, a)
	}
	h.becomes("empty", func() string {
		ids, err := attempt.OpenJournal(h.stateDir).List()
		if err != nil || len(ids) > 0 || len(h.daemon.running()) > 0 || len(h.claims()) > 0 {
			return fmt.Sprintf("records %v (%v), containers %v, claims %v", ids, err, h.daemon.running(), h.claims())
		}
		return ""
	})
	must.SliceEmpty(h.t, h.daemon.breached())
}

// becomes sweeps until wrong says that nothing is.
func (h *history) becomes(what string, wrong func() string) {
	last := ""
	must.Wait(h.t, wait.InitialSuccess(wait.BoolFunc(func() bool {
		for _, a := range h.wanted() {
			h.start(h.agent, a)
		}
		h.stopUnwanted()
		h.sweep()
		last = wrong()
		return last == ""
	}), wait.Timeout(time.Minute), wait.Gap(10*time.Millisecond)), must.Func(func() string { return "not " + what + ": " + last + "\n" + h.state() }))
}

// state describes the node for the developer who looks for a fault.
func (h *history) state() string {
	var b strings.Builder
	p := h.agent.plugin
	s, _ := p.serving()
	_, sole := s.reaper.Instance.Sole(time.Now())
	fmt.Fprintf(&b, "sole: %v, starts: %d\n", sole, p.starts.count())
	h.outage(nil)
	snapshot, err := h.table.Snapshot(h.t.Context())
	must.NoError(h.t, err)
	for _, gpu := range snapshot.GPUs {
		_, err := s.reaper.Reconcile(h.t.Context(), gpu.ID, time.Now().Add(time.Hour))
		for _, claim := range gpu.Claims() {
			fmt.Fprintf(&b, "claim on %s: %s %s %s, held: %v, ownership %v; reconciled: %v\n", gpu.ID, claim.Attempt, claim.Units, claim.State,
				s.reaper.Locks.IsKept(claim.Attempt), s.reaper.Node.Ownership(gpu.ID, claim), err)
		}
	}
	records, err := attempt.OpenJournal(h.stateDir).All()
	for _, a := range records {
		fmt.Fprintf(&b, "record %s: over %v, released %v, units %v, held: %v\n",
			a.ID, a.Over, a.Released, a.Units, s.reaper.Locks.IsKept(a.ID))
	}
	for _, c := range h.daemon.running() {
		fmt.Fprintf(&b, "running %s %s\n", c.Name, c.Labels[label.Attempt])
	}
	for n, p := range h.processes {
		connected, _ := p.agent.state()
		fmt.Fprintf(&b, "process %d: ended %v, superseded %v, connected %v, tasks %d\n", n, p.ctx.Err(), isClosed(p.Superseded()), connected, len(p.tasks.all()))
	}
	fmt.Fprintln(&b, "journal:", err)
	return b.String()
}

// stopUnwanted stops what was still being started when Nomad stopped it.
func (h *history) stopUnwanted() {
	for _, a := range h.allocs {
		a.mu.Lock()
		unwanted := !a.wanted && a.handle != nil
		a.mu.Unlock()
		if unwanted {
			h.stop(h.agent, a)
		}
	}
}

// consistent compares what runs with what is claimed and wanted.
func (h *history) consistent() string {
	var running, wanted []string
	for _, c := range h.daemon.running() {
		running = append(running, c.Labels[label.Alloc])
	}
	for _, a := range h.wanted() {
		wanted = append(wanted, a.id)
	}
	var claimed []string
	for _, claim := range h.claims() {
		claimed = append(claimed, strings.Fields(claim)[1])
		if !strings.HasSuffix(claim, " running") {
			return "claim without a container: " + claim
		}
	}
	for _, all := range [][]string{running, wanted, claimed} {
		slices.Sort(all)
	}
	if !slices.Equal(running, wanted) || !slices.Equal(claimed, wanted) {
		return fmt.Sprintf("wanted %v, running %v, claimed %v", wanted, running, claimed)
	}
	return ""
}
