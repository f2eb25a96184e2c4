// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package live_test

import (
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/planner/live"
	"nomad-gpu-mem/internal/planner/nomadtest"
)

// rich is a job with much that Nomad compares.
func rich() *api.Job {
	web := job("web", 3, 1)
	web.Meta = map[string]string{"team": "a"}
	group := web.TaskGroups[0]
	group.Meta = map[string]string{"tier": "b"}
	group.Constrain(api.NewConstraint("${attr.kernel.name}", "=", "linux"))
	group.Networks = []*api.NetworkResource{{DynamicPorts: []api.Port{{Label: "http", To: 8000}}}}
	task := group.Tasks[0]
	task.Env = map[string]string{"A": "b"}
	task.Constraints = []*api.Constraint{api.NewConstraint("${attr.kernel.name}", "=", "linux")}
	cpu := 200
	task.Resources.CPU = &cpu
	task.Resources.Devices[0].Affinities = []*api.Affinity{api.NewAffinity("${device.attr.index}", "=", "0", 10)}
	return web
}

// replanRich plans such a job again with an agent that does not know some fields.
func replanRich(t *testing.T, unknown ...string) (live.Replanned, *world) {
	t.Helper()
	w := newWorld(t, nomadtest.Nodes(3, gpu())...)
	one := options(planner.Shortlist)
	one.Shortlist = 1
	_, err := w.Run(t.Context(), rich(), one)
	must.NoError(t, err)
	w.nomad.Forget(unknown...)
	one.Shortlist = 3
	all, err := w.Replan(t.Context(), "*", nil, one, 3, false)
	must.NoError(t, err)
	must.Len(t, 1, all)
	return all[0], w
}

// What replan itself changes does not count as lost.
func TestReplanOfARichJob(t *testing.T) {
	t.Parallel()
	one, _ := replanRich(t)
	must.Eq(t, "", one.Error)
	must.True(t, one.Changed)
}

// A job that would lose fields is left unchanged, and the error names the fields.
func TestReplanNamesLosses(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]string{
		"Env":      `group "group", task "main": Env[A]`,
		"team":     `job: Meta[team]`,
		"tier":     `group "group": Meta[tier]`,
		"Networks": `group "group": Network`,
		"CPU":      `group "group", task "main": Resources: CPU`,
	} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			one, w := replanRich(t, field)
			must.StrContains(t, one.Error, live.ErrLoses.Error())
			must.StrContains(t, one.Error, want)
			must.False(t, one.Changed)
			w.nomad.Do(func(n *nomadtest.Nomad) { must.Eq(t, 0, n.Job("web").Version) })
		})
	}
}

// If Nomad stores less than its plan reported, replan says what is missing and how to restore it.
func TestReplanNoticesLossesAfterwards(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nomadtest.Nodes(3, gpu())...)
	one := options(planner.Shortlist)
	one.Shortlist = 1
	_, err := w.Run(t.Context(), rich(), one)
	must.NoError(t, err)
	w.nomad.OnStore = func(job map[string]any) { delete(job, "Meta") }
	one.Shortlist = 3
	all, err := w.Replan(t.Context(), "*", nil, one, 3, false)
	must.NoError(t, err)
	must.StrContains(t, all[0].Error, "without /Meta/team")
	must.StrContains(t, all[0].Error, "nomad job revert -namespace=default web 0")
	must.True(t, all[0].Changed)
}
