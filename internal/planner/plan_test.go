// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/storetest"
	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/planner/nomadtest"
)

func group(p *planner.Plan) *api.TaskGroup { return p.Job.TaskGroups[0] }

func device(p *planner.Plan, number int) *api.RequestedDevice {
	return group(p).Tasks[0].Resources.Devices[number]
}

// A job without an ask for GPU memory stays unchanged.
func TestPassThrough(t *testing.T) {
	t.Parallel()
	for _, job := range []*api.Job{
		newJob("none", 1, asking()),
		newJob("other", 1, asking(&api.RequestedDevice{Name: "nvidia/gpu"}, &api.RequestedDevice{Name: "gpu"})),
		newJob("no resources", 1, func(job *api.Job) { job.TaskGroups[0].Tasks[0].Resources = nil }),
	} {
		p := plan(t, job, planner.Cluster{}, shortlist())
		must.True(t, p.Job == job)
		must.SliceEmpty(t, p.Groups)
	}
}

func TestPinsAsWritten(t *testing.T) {
	t.Parallel()
	cluster := planner.Cluster{Nodes: nomadtest.Nodes(3, a10(), a10())}
	job := newJob("web", 4)
	before, err := json.Marshal(job)
	must.NoError(t, err)

	p := plan(t, job, cluster, shortlist())
	place := p.Groups[0].Places[0]
	must.Len(t, 3, p.Groups[0].Nodes)
	must.Eq(t, place.Node, p.Groups[0].Nodes[0])
	must.Eq(t, "${node.unique.id}", group(p).Constraints[0].LTarget)
	must.Eq(t, "set_contains_any", group(p).Constraints[0].Operand)
	must.Eq(t, place.Node, group(p).Affinities[0].RTarget)
	must.Eq(t, place.Slices[0].GPU, device(p, 0).Affinities[0].RTarget)
	must.Eq(t, allocator.Device, device(p, 0).Name)
	must.SliceEmpty(t, device(p, 0).Constraints)
	must.Eq(t, "shortlist", group(p).Meta[planner.MetaPlanned])

	p = plan(t, job, cluster, planner.Options{Policy: policy("best-fit"), Pin: planner.Soft})
	must.SliceEmpty(t, group(p).Constraints)
	must.Len(t, 1, group(p).Affinities)

	p = plan(t, job, cluster, planner.Options{Policy: policy("best-fit"), Pin: planner.Hard})
	must.Eq(t, place.Node, group(p).Constraints[0].RTarget)
	must.Eq(t, place.Slices[0].GPU, device(p, 0).Constraints[0].RTarget)
	must.SliceEmpty(t, group(p).Affinities)

	after, err := json.Marshal(job)
	must.NoError(t, err)
	must.EqJSON(t, string(before), string(after)) // the input is not changed
}

// A job that already has pins, as `nomad job inspect` prints it, is planned as
// if it had none.
func TestPlanningThePlanned(t *testing.T) {
	t.Parallel()
	for _, pin := range planner.Pins {
		options := planner.Options{Policy: policy("best-fit"), Pin: pin}
		cluster := planner.Cluster{Nodes: nomadtest.Nodes(3, a10(), a10())}
		job := newJob("web", 1, asking(ask(3), ask(4)), constrained("${attr.kernel.name}", "=", "linux"))
		job.TaskGroups[0].Constrain(api.NewConstraint("${meta.rack}", "set_contains_any", "r0,r1"))
		job.TaskGroups[0].AddAffinity(api.NewAffinity("${meta.rack}", "=", "r1", 100))
		first := job.TaskGroups[0].Tasks[0].Resources.Devices[0] // what the planner writes, too
		first.Constraints = []*api.Constraint{api.NewConstraint("${device.attr.index}", "<", "7"), api.NewConstraint("${device.attr.units}", "=", "22")}
		first.Affinities = []*api.Affinity{api.NewAffinity("${device.model}", "set_contains_any", nomadtest.UUID(1, 0), 60)}
		job.TaskGroups[0].AddAffinity(api.NewAffinity("${node.unique.id}", "set_contains_any", cluster.Nodes[1].ID, 60))
		once := plan(t, job, cluster, options)
		twice := plan(t, once.Job, cluster, options)
		must.Eq(t, once.Job, twice.Job)
		must.Len(t, 2, twice.Job.TaskGroups[0].Tasks[0].Resources.Devices)
		must.SliceContainsAll(t, device(twice, 0).Constraints[:2], first.Constraints)
		must.True(t, plan(t, job, running(cluster, once), options).Groups[0].Kept)
	}
}

func TestConstraints(t *testing.T) {
	t.Parallel()
	cluster := planner.Cluster{Nodes: []*structs.Node{nomadtest.Node(0, a10()), nomadtest.Node(1, a10(), h100()), nomadtest.Node(2, a10())}}
	cluster.Nodes[2].SchedulingEligibility = structs.NodeSchedulingIneligible
	tests := []struct {
		name string
		job  *api.Job
		want string // GPU, "" if none
		says string
	}{
		{"of the job", newJob("j", 2, constrained("${meta.rack}", "=", "r1")), nomadtest.UUID(1, 0), ""},
		{"of the device", newJob("j", 2, asking(of("NVIDIA H100"))), nomadtest.UUID(1, 1), ""},
		{"by UUID", newJob("j", 2, asking(&api.RequestedDevice{Name: allocator.Device + "/" + nomadtest.UUID(1, 1), Count: ptr(uint64(2))})), nomadtest.UUID(1, 1), ""},
		{"bare name", newJob("j", 2, constrained("${meta.rack}", "=", "r1"), asking(&api.RequestedDevice{Name: "gpu-mem"})), nomadtest.UUID(1, 0), ""},
		{"size", newJob("j", 23), nomadtest.UUID(1, 1), ""},
		{"nowhere", newJob("j", 80), "", "needs 80 units"},
		{"no such model", newJob("j", 1, asking(of("NVIDIA T4"))), "", "no GPU that task"},
		{"no such rack", newJob("j", 1, constrained("${meta.rack}", "=", "r7")), "", "${meta.rack} = r7"},
		{"datacenter", newJob("j", 1, func(job *api.Job) { job.Datacenters = []string{"dc2"} }), "", "datacenter dc1"},
		{"pool", newJob("j", 1, func(job *api.Job) { job.NodePool = ptr("gpu") }), "", "node pool default"},
		{"driver", newJob("j", 1, func(job *api.Job) { job.TaskGroups[0].Tasks[0].Driver = "podman" }), "", "task driver of the job is missing"},
		{"CPU", newJob("j", 1, func(job *api.Job) { job.TaskGroups[0].Tasks[0].Resources.CPU = ptr(99999) }), "", "99999 MHz"},
		{"memory", newJob("j", 1, func(job *api.Job) { job.TaskGroups[0].Tasks[0].Resources.MemoryMB = ptr(1 << 20) }), "", "1048576 MiB"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := plan(t, tc.job, cluster, shortlist())
			if tc.want != "" {
				must.Eq(t, 0, p.Missing())
				must.Eq(t, tc.want, p.Groups[0].Places[0].Slices[0].GPU)
				return
			}
			must.Eq(t, 1, p.Missing())
			must.StrContains(t, text(t, p.Groups[0].Short), tc.says)
			must.SliceEmpty(t, group(p).Constraints) // free to start wherever units become free
		})
	}
}

func text(t *testing.T, value any) string {
	t.Helper()
	data, err := json.MarshalIndent(value, "", " ")
	must.NoError(t, err)
	var plain any
	must.NoError(t, json.Unmarshal(data, &plain))
	return string(data)
}

// Instances that fit are planned beside those that do not.
func TestSomeFit(t *testing.T) {
	t.Parallel()
	p := plan(t, newJob("j", 12, count(5)), planner.Cluster{Nodes: nomadtest.Nodes(2, a10())}, shortlist())
	must.Len(t, 2, p.Groups[0].Places)
	must.Eq(t, 3, p.Missing())
	must.Eq(t, planner.Soft, p.Groups[0].Pin)
	must.StrContains(t, p.Groups[0].Short[0].Why[0], "2 units short")
	must.StrContains(t, p.Groups[0].Short[0].Why[0], "has 10 of 22 free: 2 units short")
}

func TestDistinctHosts(t *testing.T) {
	t.Parallel()
	job := newJob("j", 1, count(3))
	job.TaskGroups[0].Constrain(&api.Constraint{Operand: api.ConstraintDistinctHosts})
	p := plan(t, job, planner.Cluster{Nodes: nomadtest.Nodes(2, a10(), a10())}, shortlist())
	must.Len(t, 2, p.Groups[0].Places)
	must.NotEq(t, p.Groups[0].Places[0].Node, p.Groups[0].Places[1].Node)
	must.StrContains(t, p.Groups[0].Short[0].Why[0], "distinct hosts")
}

func TestAsksApart(t *testing.T) {
	t.Parallel()
	cluster := planner.Cluster{Nodes: nomadtest.Nodes(1, a10(), a10(), a10(), a10())}
	names := func(p *planner.Plan) []string {
		var all []string
		for _, d := range group(p).Tasks[0].Resources.Devices {
			all = append(all, d.Name)
		}
		return all
	}
	gpus := func(p *planner.Plan) map[string]bool {
		set := map[string]bool{}
		for _, s := range p.Groups[0].Places[0].Slices {
			set[s.GPU] = true
		}
		return set
	}
	p := plan(t, newJob("j", 1, asking(ask(2), ask(2), ask(2))), cluster, shortlist())
	must.MapLen(t, 3, gpus(p))
	must.Eq(t, []string{"nvidia/gpu-mem", "gpu-mem", "nvidia/gpu-mem/"}, names(p))

	p = plan(t, newJob("j", 1, asking(ask(2), ask(2)), meta(planner.MetaApart, "false")), cluster, shortlist())
	must.MapLen(t, 1, gpus(p))
	must.SliceEmpty(t, device(p, 0).Constraints)

	// Asks that no GPU satisfies both need no ranges.
	cluster.Nodes = []*structs.Node{nomadtest.Node(0, a10(), h100())}
	p = plan(t, newJob("j", 1, asking(of("NVIDIA A10"), of("NVIDIA H100"))), cluster, shortlist())
	must.Len(t, 1, device(p, 0).Constraints)

	p = plan(t, newJob("j", 1, asking(ask(1), ask(1), ask(1))), cluster, shortlist())
	must.Eq(t, 1, p.Missing())
}

// MIG instances of one GPU share its index: asks are separated by UUID.
func TestAsksApartOnMIG(t *testing.T) {
	t.Parallel()
	n := nomadtest.Node(0, a10(), a10())
	n.NodeResources.Devices[1].Attributes["index"] = n.NodeResources.Devices[0].Attributes["index"]
	p := plan(t, newJob("j", 1, asking(ask(2), ask(2))), planner.Cluster{Nodes: []*structs.Node{n}}, shortlist())
	must.Eq(t, planner.Hard, p.Groups[0].Pin)
	must.NotEq(t, device(p, 0).Constraints[0].RTarget, device(p, 1).Constraints[0].RTarget)
}

func TestProfiles(t *testing.T) {
	t.Parallel()
	cluster := planner.Cluster{
		Nodes: []*structs.Node{nomadtest.Node(0, gpuSpec{Model: "NVIDIA A10", Units: 20, UnitMiB: 512}), nomadtest.Node(1, a10())},
		Profiles: map[string]allocator.Profile{
			"resnet50": {BaseMiB: 1500, MiBPer: map[string]float64{"batch": 120.5}},
			"huge":     {BaseMiB: 90000},
		},
	}
	job := newJob("j", 1, meta(planner.MetaProfile, "resnet50"), meta("gpu_mem_batch", "8"))
	must.Eq(t, []string{"resnet50"}, planner.ProfileNames(job))
	p := plan(t, job, cluster, shortlist())
	s := p.Groups[0].Places[0].Slices[0] // 2464 MiB: 2560 on the small units leaves least
	must.Eq(t, []any{nomadtest.UUID(0, 0), 5}, []any{s.GPU, s.Units})
	must.Eq(t, uint64(5), *device(p, 0).Count)
	must.Eq(t, "512 MiB", device(p, 0).Constraints[0].RTarget)

	must.True(t, plan(t, job, running(cluster, p), shortlist()).Groups[0].Kept)
	changed := running(cluster, p)
	changed.Profiles = map[string]allocator.Profile{"resnet50": {BaseMiB: 4000, MiBPer: map[string]float64{"batch": 1}}}
	must.False(t, plan(t, job, changed, shortlist()).Groups[0].Kept)

	p = plan(t, newJob("j", 1, meta(planner.MetaProfile, "huge")), cluster, shortlist())
	must.Eq(t, 1, p.Missing())
	must.Eq(t, uint64(88), *device(p, 0).Count) // Nomad waits for as much
}

func TestJobErrors(t *testing.T) {
	t.Parallel()
	cluster := planner.Cluster{
		Nodes:    nomadtest.Nodes(1, a10()),
		Profiles: map[string]allocator.Profile{"p": {BaseMiB: 100, MiBPer: map[string]float64{"batch": 1}}},
	}
	for says, job := range map[string]*api.Job{
		`profile "q" not found`:       newJob("j", 1, meta(planner.MetaProfile, "q")),
		"batch is missing":            newJob("j", 1, meta(planner.MetaProfile, "p")),
		`"p" (attributes are meta`:    newJob("j", 1, meta(planner.MetaProfile, "p"), meta("gpu_mem_batch", "8x")),
		"no GPU has":                  newJob("j", 1, meta(planner.MetaProfile, "p"), meta("gpu_mem_batch", "1e30")),
		`invalid value "half"`:        newJob("j", 1, meta(planner.MetaAmount, "half")),
		"keep one":                    newJob("j", 1, meta(planner.MetaAmount, "whole"), meta(planner.MetaProfile, "p")),
		"count = 0":                   newJob("j", 0),
		"invalid count -4":            newJob("j", 1, count(-4)),
		"no node has a GPU":           newJob("j", 1, meta(planner.MetaAmount, "whole"), asking(of("NVIDIA T4"))),
		`group "group", task "main":`: newJob("j", 0),
	} {
		_, err := planner.PlanJob(job, cluster, shortlist())
		must.ErrorIs(t, err, planner.ErrJob)
		must.ErrorContains(t, err, says)
	}
}

// Templates are started later: they get counts, their asks use different GPUs, and they get
// no pin.
func TestTemplates(t *testing.T) {
	t.Parallel()
	for name, change := range templates() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job := newJob("j", 1, kind("batch"), asking(ask(1), ask(1)), meta(planner.MetaAmount, "whole"), change)
			p := plan(t, job, planner.Cluster{Nodes: nomadtest.Nodes(2, a10(), a10())}, shortlist())
			must.StrContains(t, p.Groups[0].Note, "started later")
			must.Eq(t, planner.Pin(""), p.Groups[0].Pin)
			must.SliceEmpty(t, group(p).Constraints)
			must.SliceEmpty(t, p.Reservations)
			must.Eq(t, uint64(22), *device(p, 0).Count)
			must.Len(t, 2, device(p, 0).Constraints) // its index, and 22 units in all

			p = plan(t, newJob("j", 30, kind("batch"), change), planner.Cluster{Nodes: nomadtest.Nodes(1, a10())}, shortlist())
			must.Eq(t, 0, p.Missing())
			must.StrContains(t, p.Groups[0].Note, "needs 30 units")
		})
	}
}

// table is an allocation table in memory.
func table() *allocator.Table { return allocator.NewTable(storetest.NewMemory()) }

func snapshot(t *testing.T, table *allocator.Table) *allocator.Snapshot {
	t.Helper()
	s, err := table.Snapshot(t.Context())
	must.NoError(t, err)
	return s
}

// Units that others hold or have reserved are taken; the job's own reservations are
// free for it; a cordoned GPU is out.
func TestTheTableCounts(t *testing.T) {
	t.Parallel()
	held := table()
	cluster := planner.Cluster{Nodes: nomadtest.Nodes(1, a10(), a10())}
	for i, job := range []string{"other", "mine"} {
		gpu := allocator.GPUID(nomadtest.UUID(0, i))
		owner := allocator.Owner{Namespace: "default", Job: job, Group: "group", Task: "main", Alloc: "plan-" + job}
		must.NoError(t, held.Reserve(t.Context(), owner, time.Minute, []allocator.UnitRequest{{GPU: gpu, UnitMiB: 1024, TotalUnits: 22, Count: 20}}))
	}
	cluster.Table = snapshot(t, held)
	p := plan(t, newJob("mine", 5), cluster, shortlist())
	must.Eq(t, nomadtest.UUID(0, 1), p.Groups[0].Places[0].Slices[0].GPU)
	must.Len(t, 1, planner.StaleReservations(cluster.Table, "default", "mine"))

	must.NoError(t, held.Cordon(t.Context(), allocator.GPUID(nomadtest.UUID(0, 1)), "fan"))
	cluster.Table = snapshot(t, held)
	must.Eq(t, 1, plan(t, newJob("mine", 5), cluster, shortlist()).Missing())
}

// What Nomad has booked counts before the driver has claimed it, and unhealthy
// units are unavailable.
func TestBookingsAndHealthCount(t *testing.T) {
	t.Parallel()
	sick := a10()
	sick.Sick = []int{0, 1, 2, 3}
	cluster := planner.Cluster{Nodes: nomadtest.Nodes(1, sick)}
	p := plan(t, newJob("first", 10), cluster, shortlist())
	must.Eq(t, 8, p.Groups[0].Places[0].Slices[0].Left)
	cluster = running(cluster, p)
	must.Eq(t, 0, plan(t, newJob("second", 8), cluster, shortlist()).Missing())
	must.Eq(t, 1, plan(t, newJob("second", 9), cluster, shortlist()).Missing())
}

func TestReservations(t *testing.T) {
	t.Parallel()
	held := table()
	sick := a10()
	sick.Sick = []int{21}
	cluster := planner.Cluster{Nodes: nomadtest.Nodes(2, sick, sick)}
	p := plan(t, newJob("j", 1, asking(ask(3), ask(4)), count(2)), cluster, shortlist())
	must.Len(t, 2, p.Reservations)
	for _, r := range p.Reservations {
		must.Len(t, 2, r.Requests)
		must.NoError(t, held.Reserve(t.Context(), r.Owner, planner.ReservationTime, r.Requests))
	}
	total := 0
	for _, gpu := range snapshot(t, held).GPUs {
		for _, claim := range gpu.Claims() {
			must.False(t, claim.Units.Contains(21))
			total += len(claim.Units)
		}
	}
	must.Eq(t, 14, total)

	again := plan(t, newJob("j", 1, asking(ask(3), ask(4)), count(2)), cluster, shortlist())
	must.Eq(t, p.Reservations[0].Owner.Alloc, again.Reservations[0].Owner.Alloc)
	must.NotEq(t, p.Reservations[0].Owner.Alloc, p.Reservations[1].Owner.Alloc)
}

// A running group that was submitted without the planner is left unchanged.
func TestUnplannedGroupThatRuns(t *testing.T) {
	t.Parallel()
	cluster := planner.Cluster{Nodes: nomadtest.Nodes(3, a10())}
	first := plan(t, newJob("j", 5), cluster, shortlist())
	cluster = running(cluster, first)
	cluster.Registered = newJob("j", 5)
	p := plan(t, newJob("j", 5), cluster, shortlist())
	must.True(t, p.Groups[0].Kept)
	must.SliceEmpty(t, group(p).Constraints)
	must.SliceEmpty(t, group(p).Affinities)
	must.MapEmpty(t, group(p).Meta)
}

// A group's own list of nodes is never the planner's: replan must not
// change it.
func TestOwnListOfNodes(t *testing.T) {
	t.Parallel()
	own := nomadtest.NodeID(1) + "," + nomadtest.NodeID(2)
	for _, pin := range planner.Pins {
		for _, units := range []int{3, 30} { // fits; fits nowhere
			cluster := planner.Cluster{Nodes: nomadtest.Nodes(4, a10())}
			job := newJob("j", units)
			job.TaskGroups[0].Constrain(api.NewConstraint("${node.unique.id}", "set_contains_any", own))
			options := planner.Options{Policy: policy("best-fit"), Pin: pin}
			p := plan(t, job, cluster, options)
			options.Replan = true
			for range 2 {
				cluster.Registered = p.Job
				p = plan(t, p.Job, cluster, options)
				must.Eq(t, own, group(p).Constraints[0].RTarget)
			}
			cluster = running(cluster, p)
			p = plan(t, p.Job, cluster, options)
			must.Eq(t, own, group(p).Constraints[0].RTarget)
			must.Len(t, 2, group(p).Constraints)
		}
	}
}

// A task may get the units of the task that it replaces.
func TestChangedGroupMayUseItsOwnUnits(t *testing.T) {
	t.Parallel()
	cluster := planner.Cluster{Nodes: nomadtest.Nodes(1, a10())}
	cluster = running(cluster, plan(t, newJob("j", 15), cluster, shortlist()))
	p := plan(t, newJob("j", 20), cluster, shortlist())
	must.False(t, p.Groups[0].Kept)
	must.Eq(t, 0, p.Missing())
	must.SliceEmpty(t, p.Reservations)
}

func TestRandomIsTheSameForPlanAndRun(t *testing.T) {
	t.Parallel()
	cluster := planner.Cluster{Nodes: nomadtest.Nodes(50, a10())}
	options := planner.Options{Policy: policy("random"), Pin: planner.Hard}
	first := plan(t, newJob("j", 3), cluster, options)
	must.Eq(t, first.Groups, plan(t, newJob("j", 3), cluster, options).Groups)
	must.NotEq(t, first.Groups[0].Nodes, plan(t, newJob("k", 3), cluster, options).Groups[0].Nodes)
}

func TestParsePin(t *testing.T) {
	t.Parallel()
	for _, pin := range planner.Pins {
		got, err := planner.ParsePin(string(pin))
		must.NoError(t, err)
		must.Eq(t, pin, got)
	}
	_, err := planner.ParsePin("firm")
	must.ErrorContains(t, err, "want shortlist, soft or hard")
}

// A job without a node pool goes to the nodes of the default one only.
func TestNodePools(t *testing.T) {
	t.Parallel()
	nodes := nomadtest.Nodes(2, a10())
	nodes[0].NodePool = "gpu"
	for pool, want := range map[string][]string{"": {nodes[1].ID}, "gpu": {nodes[0].ID}, "all": {nodes[0].ID, nodes[1].ID}} {
		p := plan(t, newJob("j", 3, func(job *api.Job) { job.NodePool = &pool }), planner.Cluster{Nodes: nodes}, shortlist())
		must.SliceContainsAll(t, want, p.Groups[0].Nodes, must.Sprint(pool))
	}
}

// Distinct hosts of one group leave the nodes to the others; those of the job do
// not.
func TestDistinctHostsOfAGroup(t *testing.T) {
	t.Parallel()
	distinct := api.NewConstraint("", api.ConstraintDistinctHosts, "")
	tests := []struct {
		name           string
		job, first     []*api.Constraint
		missing, other int
	}{
		{"of a group", nil, []*api.Constraint{distinct}, 1, 0},
		{"of the job", []*api.Constraint{distinct}, nil, 1, 2},
		{"not wanted", []*api.Constraint{api.NewConstraint("", api.ConstraintDistinctHosts, "0")}, nil, 0, 0},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			job := newJob("j", 1, count(3))
			other := nomadtest.Convert[*api.TaskGroup](t, job.TaskGroups[0])
			other.Name, other.Count = ptr("other"), ptr(2)
			job.AddTaskGroup(other)
			job.Constraints, job.TaskGroups[0].Constraints = tc.job, tc.first
			p := plan(t, job, planner.Cluster{Nodes: nomadtest.Nodes(2, a10())}, shortlist())
			must.Len(t, 3-tc.missing, p.Groups[0].Places)
			must.Len(t, 2-tc.other, p.Groups[1].Places)
		})
	}
}

// The table knows within a second what Nomad learns from its client up to ten seconds
// later: a GPU that is lost, has withheld units, or is missing on its node.
func TestTheTableKnowsOfALossBeforeNomad(t *testing.T) {
	t.Parallel()
	first := allocator.GPUID(nomadtest.UUID(0, 0))
	all := make(allocator.UnitSet, 0, 22)
	for unit := range 22 {
		all = append(all, unit)
	}
	for name, test := range map[string]struct {
		health    string
		unhealthy allocator.UnitSet
		node      []allocator.GPUID // that it lists
		units     int               // that the job asks for
		missing   int
	}{
		"well":           {node: []allocator.GPUID{first}, units: 20},
		"lost":           {health: "NVML no longer reports this GPU", unhealthy: all, node: []allocator.GPUID{first}, units: 1, missing: 1},
		"not found":      {node: []allocator.GPUID{}, units: 1, missing: 1},
		"units withheld": {health: "memory in use", unhealthy: all[12:], node: []allocator.GPUID{first}, units: 13, missing: 1},
		"units left":     {health: "memory in use", unhealthy: all[12:], node: []allocator.GPUID{first}, units: 12},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := table()
			must.NoError(t, state.PutNode(t.Context(), allocator.NodeState{Name: "host-0", GPUs: test.node}))
			must.NoError(t, state.PutGPU(t.Context(), first, allocator.GPUState{
				Node: "host-0", UnitMiB: 1024, Units: 22, Health: test.health, Unhealthy: test.unhealthy,
			}))
			cluster := planner.Cluster{Nodes: nomadtest.Nodes(1, a10()), Table: snapshot(t, state)}
			p := plan(t, newJob("job", test.units), cluster, shortlist())
			must.Eq(t, test.missing, p.Missing())
			for _, r := range p.Reservations {
				must.NoError(t, state.Reserve(t.Context(), r.Owner, planner.ReservationTime, r.Requests))
			}
			for _, claim := range snapshot(t, state).GPUs[0].Claims() {
				must.SliceEmpty(t, claim.Units.Intersect(test.unhealthy))
			}
		})
	}
}
