// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/planner/nomadtest"
)

func read(t *testing.T, text string) *planner.Document {
	t.Helper()
	document, err := planner.ReadJob([]byte(text))
	must.NoError(t, err)
	return document
}

// changed applies the patch that turns a job into one that a change was made to.
func changed(t *testing.T, document *planner.Document, change func(group *api.TaskGroup)) (paths []string, text string) {
	t.Helper()
	var job api.Job
	must.NoError(t, json.Unmarshal(document.Text, &job))
	job.Canonicalize()
	change(job.TaskGroups[0])
	operations, err := document.Patch(&planner.Plan{Job: &job, Groups: []planner.Group{{}}})
	must.NoError(t, err)
	for _, o := range operations {
		paths = append(paths, o.Op+" "+o.Path)
	}
	applied, err := document.Apply(operations)
	must.NoError(t, err)
	return paths, string(applied)
}

// A patch changes entries, not the list that holds them, so that an unchanged entry keeps
// fields that this program does not know.
func TestPatchOfSingleEntries(t *testing.T) {
	t.Parallel()
	document := read(t, `{"ID": "web", "New": 18446744073709551615, "TaskGroups": [{"Name": "g",
	  "Meta": {"team/a": "1", "old": "2"},
	  "Constraints": [{"LTarget": "a", "New": 1}, {"LTarget": "b"}, {"LTarget": "c", "New": 2}],
	  "Tasks": [{"Name": "t", "Resources": {"Devices": [{"Name": "nvidia/gpu-mem", "Affinities": [{"LTarget": "x"}], "New": 9007199254740993}]}}]}]}`)
	paths, text := changed(t, document, func(group *api.TaskGroup) {
		group.Constraints[1] = &api.Constraint{LTarget: "d"}
		delete(group.Meta, "old")
		group.Meta["team/a"], group.Meta["b~"] = "3", "4"
		device := group.Tasks[0].Resources.Devices[0]
		device.Name, device.Affinities = "gpu-mem", nil
		*device.Count = 5
	})
	must.Eq(t, []string{
		"remove /TaskGroups/0/Constraints/1", "add /TaskGroups/0/Constraints/1",
		"remove /TaskGroups/0/Meta/old", "add /TaskGroups/0/Meta/b~0", "add /TaskGroups/0/Meta/team~1a",
		"add /TaskGroups/0/Tasks/0/Resources/Devices/0/Name", "add /TaskGroups/0/Tasks/0/Resources/Devices/0/Count",
		"remove /TaskGroups/0/Tasks/0/Resources/Devices/0/Affinities",
	}, paths)
	must.EqJSON(t, `{"ID": "web", "New": 18446744073709551615, "TaskGroups": [{"Name": "g",
	  "Meta": {"team/a": "3", "b~": "4"},
	  "Constraints": [{"LTarget": "a", "New": 1}, {"LTarget": "d", "RTarget": "", "Operand": ""}, {"LTarget": "c", "New": 2}],
	  "Tasks": [{"Name": "t", "Resources": {"Devices": [{"Name": "gpu-mem", "Count": 5, "New": 9007199254740993}]}}]}]}`, text)
	for _, number := range []string{"18446744073709551615", "9007199254740993"} {
		must.StrContains(t, text, number)
	}
}

// Nomad's defaults are not written, and without a change the patch is empty.
func TestPatchOfNothing(t *testing.T) {
	t.Parallel()
	document := read(t, `{"ID": "web", "TaskGroups": [{"Name": "g", "Meta": null, "Constraints": [], "Affinities": [{"LTarget": "a"}],
	  "Tasks": [{"Name": "t", "Resources": {"Devices": [{"Name": "nvidia/gpu-mem"}]}}]}]}`)
	paths, text := changed(t, document, func(*api.TaskGroup) {})
	must.SliceEmpty(t, paths)
	must.Eq(t, string(document.Text), text)
}

func TestWithFieldsOfTheJob(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"ID": "web", "N": 9007199254740993}`: `{"ID": "web", "N": 9007199254740993, "VaultToken": "s"}`,
		`{"ID": "web", "vaulttoken": null}`:    `{"ID": "web", "vaulttoken": "s"}`,
		`{"ID": "web", "VaultToken": ""}`:      `{"ID": "web", "VaultToken": "s"}`,
		`{"ID": "web", "VaultToken": "own"}`:   `{"ID": "web", "VaultToken": "own"}`,
	} {
		with, err := read(t, text).With("VaultToken", "s")
		must.NoError(t, err)
		must.EqJSON(t, want, string(with.Text))
		must.Eq(t, strings.Contains(text, "9007199254740993"), strings.Contains(string(with.Text), "9007199254740993"))
	}
	_, err := read(t, `{"ID": "web", "VaultToken": "", "vaultToken": ""}`).With("VaultToken", "s")
	must.ErrorContains(t, err, "two spellings")
}

func TestLost(t *testing.T) {
	t.Parallel()
	before := `{"ID": "web", "Version": 3, "UI": {"Description": "d", "Links": []}, "Stop": false, "JobModifyIndex": 7,
	  "TaskGroups": [{"Constraints": [1], "Meta": {"gpu_mem_planned": "soft", "team": "a"}, "Scaling": {"ModifyIndex": 7, "Max": 9007199254740993},
	    "Tasks": [{"Actions": [{"Name": "x"}], "Resources": {"Devices": [{"Name": "a", "Count": 1, "New": 1}]}}]}]}`
	for after, want := range map[string][]string{
		before: nil,
		`{"ID": "web", "Version": 4, "UI": {"Description": "d"}, "JobModifyIndex": 8, "More": 1,
		  "TaskGroups": [{"Constraints": [], "Meta": {"team": "a"}, "Scaling": {"ModifyIndex": 8, "Max": 9007199254740993},
		    "Tasks": [{"Actions": [{"Name": "x"}], "Resources": {"Devices": [{"Name": "b", "Count": 2, "New": 1}]}}]}]}`: nil,
		`{"ID": "web", "TaskGroups": [{"Meta": {"team": "b"}, "Scaling": {"Max": 9007199254740992},
		    "Tasks": [{"Actions": [], "Resources": {"Devices": [{"Name": "a"}]}}]}]}`: {
			"/TaskGroups/0/Meta/team", "/TaskGroups/0/Scaling/Max", "/TaskGroups/0/Tasks/0/Actions",
			"/TaskGroups/0/Tasks/0/Resources/Devices/0/New", "/UI/Description"},
	} {
		lost, err := planner.Lost([]byte(before), []byte(after))
		must.NoError(t, err)
		must.Eq(t, want, lost)
	}
}

// Fields of the planner do not count as lost, even with the object that holds them.
func TestLostWithoutMeta(t *testing.T) {
	t.Parallel()
	lost, err := planner.Lost([]byte(`{"TaskGroups": [{"Meta": {"gpu_mem_planned": "soft"}}]}`), []byte(`{"TaskGroups": [{"Meta": null}]}`))
	must.NoError(t, err)
	must.SliceEmpty(t, lost)
}

// Nomad adds constraints to a job when it registers it, for example that Consul must be
// available for a service. The list of nodes is found before them and keeps its position.
func TestListOfNodesBeforeImpliedConstraints(t *testing.T) {
	t.Parallel()
	cluster := planner.Cluster{Nodes: nomadtest.Nodes(4, a10())}
	two := shortlist()
	two.Shortlist = 2
	cluster = running(cluster, plan(t, newJob("web", 3), cluster, two))
	group := cluster.Registered.TaskGroups[0]
	implied := api.NewConstraint("${attr.kernel.name}", "=", "linux")
	group.Constraints = append(group.Constraints, implied)

	must.SliceEmpty(t, planner.NeedsPins(cluster.Registered, cluster, nil, 2))
	must.Len(t, 1, planner.NeedsPins(cluster.Registered, cluster, nil, 3))

	three := planner.Options{Policy: policy("best-fit"), Pin: planner.Shortlist, Shortlist: 3, Replan: true}
	again := plan(t, cluster.Registered, cluster, three)
	must.True(t, again.Groups[0].Kept)
	must.Len(t, 3, again.Groups[0].Nodes)
	now := again.Job.TaskGroups[0].Constraints
	must.Len(t, 2, now)
	must.Eq(t, strings.Join(again.Groups[0].Nodes, ","), now[0].RTarget)
	must.Eq(t, implied, now[1])
}

// The counts of the registered job are planned, also 0, and new groups
// keep their own.
func TestPreserveCounts(t *testing.T) {
	t.Parallel()
	options := shortlist()
	options.PreserveCounts = true
	for _, scaled := range []int{0, 4} {
		cluster := planner.Cluster{Nodes: nomadtest.Nodes(3, a10()), Registered: newJob("web", 3, count(scaled))}
		job := newJob("web", 3, count(1))
		other := newJob("web", 1).TaskGroups[0]
		other.Name = ptr("other")
		job.AddTaskGroup(other)
		p := plan(t, job, cluster, options)
		must.Eq(t, scaled, p.Groups[0].Count)
		must.Len(t, scaled, p.Groups[0].Places)
		must.Eq(t, 1, p.Groups[1].Count)
		must.Eq(t, 1, *job.TaskGroups[0].Count)
	}
}
