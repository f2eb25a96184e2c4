// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// alone is a process of the plugin that no agent is connected to.
func (w *world) alone() *Plugin {
	p := w.newPlugin()
	w.t.Cleanup(p.Shutdown)
	must.NoError(w.t, p.SetConfig(w.agentConfig()))
	return p
}

// A process that its agent has lost ends when another one serves the node.
func TestSupersededProcessEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	older := w.alone()
	younger := w.boot()
	eventually(t, func() bool { return isClosed(older.Superseded()) })
	older.Shutdown()
	s, err := younger.plugin.serving()
	must.NoError(t, err)
	eventually(t, func() bool { _, sole := s.reaper.Instance.Sole(time.Now()); return sole })
	must.False(t, isClosed(younger.plugin.Superseded()))
}

// Two agents with one state_dir are a mistake of the operator: neither process ends, and
// neither takes the other's tasks for orphans.
func TestTwoAgentsWithOneStateDir(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	older, younger := w.boot(), w.boot()
	w.engine.put("task of the other", "x", "running")
	for _, d := range []*driver{older, younger} {
		s, err := d.plugin.serving()
		must.NoError(t, err)
		s.removeAllDangling(t.Context(), time.Now().Add(time.Hour))
	}
	must.Eq(t, []string{"task of the other"}, w.engine.ids())
	s, err := older.plugin.serving()
	must.NoError(t, err)
	over, reason := s.succession(time.Now())
	must.False(t, over)
	must.StrContains(t, reason, "give each agent on this machine a state_dir of its own")
}

// A process that no agent comes back to ends, but not in the middle of a start.
func TestProcessWithoutAnAgentEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.alone()
	s, err := p.serving()
	must.NoError(t, err)
	later := time.Now().Add(2 * p.pace.lonely)
	over, _ := s.succession(time.Now())
	must.False(t, over)
	_, end, _ := p.starts.begin(t.Context(), w.task(``))
	over, _ = s.succession(later)
	must.False(t, over)
	end()
	over, _ = s.succession(later)
	must.True(t, over)
	connected := p.agent.open(time.Now)
	over, _ = s.succession(later)
	must.False(t, over)
	connected()
}

// An agent may be killed while it starts another process, and the next agent then finds
// this one: a later process counts while it lives.
// A process that takes the place of a dead one does not take that of a process that began meanwhile.
