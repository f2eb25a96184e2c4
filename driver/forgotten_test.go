// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"os"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/attempt"
	"nomad-gpu-mem/driver/label"
)

// nextAgent makes the plugin believe that another agent has connected after all that
// happened until now.
func (d *driver) nextAgent() {
	d.plugin.agent.mu.Lock()
	defer d.plugin.agent.mu.Unlock()
	for s := range d.plugin.agent.streams {
		s.opened = time.Now()
	}
}

// An agent that crashes in a start never learns of the task. The next agent does not
// mention it, and it ends. What an agent knows stays.
func TestForgottenTasksEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mention func(t *testing.T, d *driver, id string)
		ended   bool
	}{
		"never mentioned": {func(*testing.T, *driver, string) {}, true},
		"recovered":       {func(_ *testing.T, d *driver, id string) { d.plugin.task(id) }, false},
		"recovered, and its allocation removed": {func(t *testing.T, d *driver, id string) {
			h, _ := d.plugin.task(id)
			must.NoError(t, os.RemoveAll(h.task.AllocDir))
		}, true},
		"its end is waited for, and its allocation removed": {func(t *testing.T, d *driver, id string) {
			h, _ := d.plugin.task(id)
			must.NoError(t, os.RemoveAll(h.task.AllocDir))
			_, err := d.plugin.WaitTask(t.Context(), id)
			must.NoError(t, err)
		}, false},
		"its end is waited for": {func(t *testing.T, d *driver, id string) {
			_, err := d.plugin.WaitTask(t.Context(), id)
			must.NoError(t, err)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d := w.boot()
			task := w.task(``, slice(gpuA, 1))
			_, _, err := d.StartTask(task)
			must.NoError(t, err)
			d.nextAgent()
			c.mention(t, d, task.ID)
			s, err := d.plugin.serving()
			must.NoError(t, err)
			s.endForgotten(t.Context(), time.Now().Add(time.Minute))
			must.SliceLen(t, 1, w.engine.running(), must.Sprint("the agent is given time to recover its tasks"))
			s.endForgotten(t.Context(), time.Now().Add(time.Hour))
			must.Eq(t, c.ended, len(w.engine.running()) == 0)
			if c.ended {
				w.nothingLeft()
			}
		})
	}
}

// While no agent is connected nothing is known of what Nomad wants.
func TestNothingIsForgottenWithoutAnAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.newPlugin()
	t.Cleanup(p.Shutdown)
	must.NoError(t, p.SetConfig(w.agentConfig()))
	task := w.task(``, slice(gpuA, 1))
	_, _, err := p.StartTask(task)
	must.NoError(t, err)
	s, err := p.serving()
	must.NoError(t, err)
	s.endForgotten(t.Context(), time.Now().Add(24*time.Hour))
	must.SliceLen(t, 1, w.engine.running())
}

// Under the name of Nomad's own driver, this one ends that driver's containers, too.
func TestDanglingContainersOfNomadsOwnDriver(t *testing.T) {
	t.Parallel()
	for _, name := range []string{Name, BuiltinName} {
		w := newWorld(t)
		w.name = name
		d := w.boot()
		s, err := d.plugin.serving()
		must.NoError(t, err)
		w.taskContainer("forgotten", "app-"+allocID, map[string]string{label.BuiltinAlloc: allocID})
		w.taskContainer("taken", "app-"+allocID, map[string]string{label.BuiltinAlloc: allocID})
		must.NoError(t, s.reaper.Journal.Write(attempt.Record{
			ID: "x", Owner: allocator.Owner{Task: "app", Alloc: allocID}, Begun: time.Now(), Container: "taken",
		}))
		w.taskContainer("pause", "nomad_init_"+allocID, map[string]string{label.BuiltinAlloc: allocID})
		w.engine.change(func() { w.engine.containers["pause"].Mounts = nil })
		s.removeAllDangling(t.Context(), time.Now().Add(time.Hour))
		if name == BuiltinName {
			must.Eq(t, []string{"pause", "taken"}, w.engine.ids())
		} else {
			must.Eq(t, []string{"forgotten", "pause", "taken"}, w.engine.ids())
		}
	}
}
