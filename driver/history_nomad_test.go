// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/internal/tableconfig"
)

// history is a node with an agent that does what Nomad's does: it books units, starts,
// stops and recovers tasks, and it crashes, as its plugin does.
type history struct {
	*world
	t      *testing.T
	random *rand.Rand
	daemon *brokenDaemon
	dir    string // of the node; each process reaches state_dir by a link of its own

	agent     *nomadAgent
	processes []*runningPlugin
	allocs    []*nomadAlloc
	calls     sync.WaitGroup
	counts    map[string]int
}

// process is one process of the plugin.
type runningPlugin struct {
	*Plugin
	link string
	kill func()
}

// nomadAgent is one process of Nomad's agent.
type nomadAgent struct {
	ctx    context.Context // ends with its crash
	crash  context.CancelFunc
	plugin *runningPlugin
}

// nomadAlloc is an allocation with one task, as Nomad's agent keeps it on disk.
type nomadAlloc struct {
	id       string
	bookings []allocator.Booking

	mu       sync.Mutex
	wanted   bool
	handle   *drivers.TaskHandle // that the agent has kept; nil: none
	task     *drivers.TaskConfig // of handle, or of the call under way
	underWay bool                // StartTask, of the agent that runs
}

func newHistory(t *testing.T, w *world, seed uint64) *history {
	w.assert = 20 * time.Millisecond
	h := &history{
		world: w, t: t, random: rand.New(rand.NewPCG(seed, 1)), daemon: newBrokenDaemon(), dir: t.TempDir(), counts: map[string]int{},
	}
	must.NoError(t, os.Mkdir(filepath.Join(h.dir, "state"), 0o700))
	h.connect(h.bootProcess())
	t.Cleanup(func() {
		h.daemon.mend()
		h.agent.crash()
		for _, p := range h.processes {
			p.kill()
		}
		h.calls.Wait()
	})
	return h
}

// bootProcess starts a process of the plugin.
func (h *history) bootProcess() *runningPlugin {
	link := filepath.Join(h.dir, fmt.Sprintf("process-%d", len(h.processes)))
	must.NoError(h.t, os.Symlink("state", link))
	alive, dies := context.WithCancel(context.Background())
	h.open = func(docker.Config) (Engine, error) { return &daemonClient{h.daemon, alive}, nil }
	h.stateDir = link
	p := h.newPlugin()
	p.openTable = func(tableconfig.Config) (Table, error) { return &deadTable{keptTable{h.table}, alive}, nil }
	p.pace.recovery = 20 * time.Millisecond
	made := &runningPlugin{Plugin: p, link: link}
	made.kill = sync.OnceFunc(func() {
		// What a killed process still does is not seen by anyone: it writes beside the node's state.
		dies()
		_ = os.Remove(link)
		p.Shutdown()
	})
	must.NoError(h.t, p.SetConfig(h.agentConfig()))
	h.processes = append(h.processes, made)
	return made
}

// deadTable is the table as a process sees it. One that was killed changes nothing.
type deadTable struct {
	Table
	alive context.Context
}

func (d *deadTable) dead() error {
	if d.alive.Err() != nil {
		return allocator.ErrUnavailable
	}
	return nil
}

func (d *deadTable) Claim(ctx context.Context, owner allocator.Owner, a allocator.Attempt, b []allocator.Booking) error {
	if err := d.dead(); err != nil {
		return err
	}
	return d.Table.Claim(ctx, owner, a, b)
}

func (d *deadTable) Running(ctx context.Context, owner allocator.Owner, attempt, container string, gpus []allocator.GPUID) error {
	if err := d.dead(); err != nil {
		return err
	}
	return d.Table.Running(ctx, owner, attempt, container, gpus)
}

func (d *deadTable) Assert(
	ctx context.Context, owner allocator.Owner, a allocator.Attempt, container string, b []allocator.Booking,
) error {
	if err := d.dead(); err != nil {
		return err
	}
	return d.Table.Assert(ctx, owner, a, container, b)
}

func (d *deadTable) Release(ctx context.Context, owner allocator.Owner, attempt string, gpus []allocator.GPUID) error {
	if err := d.dead(); err != nil {
		return err
	}
	return d.Table.Release(ctx, owner, attempt, gpus)
}

// connect starts an agent with a process of the plugin. It recovers the tasks of which it
// has a handle, and starts again those that it was starting when it crashed.
func (h *history) connect(p *runningPlugin) {
	agent := &nomadAgent{plugin: p}
	agent.ctx, agent.crash = context.WithCancel(context.Background())
	h.agent = agent
	prints, err := p.Fingerprint(agent.ctx)
	must.NoError(h.t, err)
	h.calls.Go(func() {
		for {
			select {
			case <-prints:
			case <-agent.ctx.Done():
				return
			}
		}
	})
	for _, a := range h.allocs {
		h.recover(agent, a)
	}
}

func (h *history) recover(agent *nomadAgent, a *nomadAlloc) {
	a.mu.Lock()
	kept, starting := a.handle, a.underWay
	a.underWay = false
	a.mu.Unlock()
	switch {
	case kept == nil && starting && h.random.IntN(2) == 0:
		a.forget() // it was stopped meanwhile, and nothing says that it was ever started
	case kept == nil && starting:
		h.start(agent, a)
	case kept == nil:
	case agent.plugin.RecoverTask(kept) == nil:
		h.await(agent, a, kept.Config.ID)
	default:
		a.mu.Lock()
		a.handle = nil
		a.mu.Unlock()
		h.start(agent, a)
	}
}

// forget makes the allocation one that Nomad wants nothing of any more.
func (a *nomadAlloc) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wanted, a.handle, a.task = false, nil, nil
}

// start calls StartTask once more for an allocation, with an ID of its own.
func (h *history) start(agent *nomadAgent, a *nomadAlloc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.underWay || a.handle != nil || !a.wanted {
		return
	}
	task := h.taskOf(a.id, ``, a.bookings...)
	h.daemon.note(task.ID, a.bookings)
	a.task, a.underWay = task, true
	called := time.Now() // the goroutine may begin after the agent's crash
	h.calls.Go(func() {
		handle, _, err := agent.plugin.startCalled(task, called)
		a.mu.Lock()
		defer a.mu.Unlock()
		if agent.ctx.Err() != nil {
			return // there is no agent that gets the answer
		}
		a.underWay = false
		if err == nil {
			a.handle = handle
			h.await(agent, a, task.ID)
		}
	})
}

// await opens the call that Nomad keeps open for each task that runs.
func (h *history) await(agent *nomadAgent, a *nomadAlloc, id string) {
	ended, err := agent.plugin.WaitTask(agent.ctx, id)
	if err != nil {
		return
	}
	h.calls.Go(func() {
		<-ended
		if agent.ctx.Err() == nil {
			h.destroy(agent, a, id)
		}
	})
}

// destroy ends a task as Nomad does, which does not look at the results.
func (h *history) destroy(agent *nomadAgent, a *nomadAlloc, id string) {
	_ = agent.plugin.DestroyTask(id, true)
	a.mu.Lock()
	defer a.mu.Unlock()
	if agent.ctx.Err() == nil && a.handle != nil && a.handle.Config.ID == id {
		a.handle = nil
	}
}

// stop stops an allocation for good. Its units are sold again at once.
func (h *history) stop(agent *nomadAgent, a *nomadAlloc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wanted = false
	if a.handle == nil {
		return
	}
	id := a.handle.Config.ID
	h.calls.Go(func() {
		_ = agent.plugin.StopTask(id, time.Millisecond, "")
		h.destroy(agent, a, id)
	})
}

// place books units that no wanted allocation has, and starts the allocation.
func (h *history) place() {
	gpu := []allocator.GPUID{gpuA, gpuB}[h.random.IntN(2)]
	taken := map[int]bool{}
	for _, a := range h.allocs {
		a.mu.Lock()
		if a.wanted || a.underWay { // a call under way ends before Nomad stops the task
			for _, b := range a.bookings {
				if b.GPU == gpu {
					for _, unit := range b.Units {
						taken[unit] = true
					}
				}
			}
		}
		a.mu.Unlock()
	}
	var units []int
	for unit := range 6 {
		if !taken[unit] && len(units) < 1+h.random.IntN(3) {
			units = append(units, unit)
		}
	}
	if len(units) == 0 {
		return
	}
	a := &nomadAlloc{
		id: fmt.Sprintf("0e4b2d41-0000-4000-8000-%012d", len(h.allocs)), bookings: []allocator.Booking{slice(gpu, units...)}, wanted: true,
	}
	h.allocs = append(h.allocs, a)
	h.start(h.agent, a)
}

// some returns an allocation that was placed lately.
func (h *history) some() *nomadAlloc {
	lately := h.allocs[max(0, len(h.allocs)-12):]
	if len(lately) == 0 {
		return &nomadAlloc{}
	}
	return lately[h.random.IntN(len(lately))]
}

// crashAgent ends the agent. The calls that it made go on in the plugin.
func (h *history) crashAgent() { h.agent.crash() }

// wanted are the allocations that Nomad wants to run.
func (h *history) wanted() []*nomadAlloc {
	return slices.DeleteFunc(slices.Clone(h.allocs), func(a *nomadAlloc) bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return !a.wanted
	})
}
