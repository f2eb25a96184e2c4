// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"nomad-gpu-mem/allocator"
)

// Characters of a unit map besides the marks of claims.
const (
	freeUnit        = '.'
	unavailableUnit = '!'
)

// newNodes groups the GPUs by node. It also shows nodes without a GPU, and GPUs of a node
// that no device plugin reports.
func newNodes(snapshot *allocator.Snapshot, only Filter, now time.Time) []Node {
	byName, states := map[allocator.NodeName]*Node{}, map[allocator.NodeName]allocator.NodeState{}
	for _, state := range snapshot.Nodes {
		states[state.Name] = state
		byName[state.Name] = &Node{
			Name: state.Name, Reported: true, Version: state.Version, Driver: state.Driver,
			Address: state.Address, LastSeen: state.LastSeen, Fault: state.Fault, GPUs: []GPU{},
			Liveness: snapshot.Liveness(state), Dead: snapshot.IsDead(state, now),
		}
	}
	for _, gpu := range snapshot.GPUs {
		name := nodeOf(gpu)
		if states[name].Lacks(gpu.ID) {
			gpu.State = allocator.GPUState{}
		}
		node := byName[name]
		shown := newGPU(gpu, node == nil || !node.Reported || node.Dead)
		if !shown.Reported && len(shown.Claims) == 0 && gpu.Ledger != nil {
			continue // neither reported nor claimed: it is gone
		}
		if node == nil {
			node = &Node{Name: name}
			byName[name] = node
		}
		if strings.HasPrefix(string(gpu.ID), only.GPU) {
			node.GPUs = append(node.GPUs, shown)
		}
	}
	nodes := []Node{}
	for _, node := range byName {
		if only.Node != "" && node.Name != only.Node || only.GPU != "" && len(node.GPUs) == 0 {
			continue
		}
		for _, gpu := range node.GPUs {
			node.Memory.Add(gpu.Memory)
		}
		nodes = append(nodes, *node)
	}
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes
}

// nodeOf returns the GPU's node. If no device plugin reports the GPU, a claim has the name
// of its node.
func nodeOf(gpu allocator.GPU) allocator.NodeName {
	if gpu.State.Node != "" {
		return gpu.State.Node
	}
	for _, claim := range gpu.Claims() {
		if claim.NodeName != "" {
			return claim.NodeName
		}
	}
	return "unknown node"
}

func newGPU(gpu allocator.GPU, withoutNode bool) GPU {
	state := gpu.State
	g := GPU{
		ID: gpu.ID, Reported: state.Node != "", Index: state.Index, Model: state.Model,
		Health: state.Health, Unhealthy: state.Unhealthy, UpdatedAt: state.UpdatedAt,
		UnitMiB: state.UnitMiB, Units: state.Units, Claims: []Claim{}, Notes: []string{},
	}
	if c := gpu.Cordon; c != nil {
		g.Cordon = &Cordon{Reason: c.Reason, At: c.At, Release: c.Release}
	}
	claims := gpu.Claims()
	if len(claims) > 0 { // these units are in use, whatever is offered now
		g.UnitMiB, g.Units = gpu.Ledger.UnitMiB, unitsWith(gpu, claims)
	}
	if g.Reported {
		g.UnmanagedMiB, g.UnattributedMiB = gpu.Unexplained()
	}
	units := unitMap(gpu, g, withoutNode)
	for _, claim := range claims {
		g.Claims = append(g.Claims, newClaim(claim, string(units[claim.Units[0]]), g.UnitMiB))
	}
	slices.SortStableFunc(g.Claims, func(a, b Claim) int { return a.ClaimedAt.Compare(b.ClaimedAt) })
	g.Map = string(units)
	g.Memory = newMemory(units, g.UnitMiB, state)
	g.Notes = notes(gpu, g)
	return g
}

// mostUnits bounds the units shown of a GPU with claims in much smaller units than it offers
// now, which only a typing error in memory_unit causes.
const mostUnits = 1 << 15

// unitsWith returns how many units of the claims' size a GPU has: as many as the offered
// memory has, and no fewer than the claims use. If no device plugin offers the GPU, the
// ledger's number of units counts.
func unitsWith(gpu allocator.GPU, claims []allocator.Claim) int {
	if gpu.State.Node == "" {
		return len(gpu.Ledger.Units)
	}
	count := int(uint64(gpu.State.Units) * gpu.State.UnitMiB / gpu.Ledger.UnitMiB)
	count = min(count, mostUnits)
	for _, claim := range claims {
		count = max(count, claim.Units[len(claim.Units)-1]+1)
	}
	return count
}

// unitMap returns a character for each unit. A unit is unavailable if the device plugin
// reports it as unhealthy, offers units of another size or does not offer the GPU, if the
// node is dead or unknown, if the GPU is cordoned, or if its claims cannot be read.
func unitMap(gpu allocator.GPU, g GPU, withoutNode bool) []rune {
	refused := withoutNode || gpu.Ledger == nil || gpu.Cordon != nil || !g.Reported || g.UnitMiB != gpu.State.UnitMiB
	units := make([]rune, g.Units)
	for unit := range units {
		units[unit] = freeUnit
		if refused || unit >= gpu.State.Units || g.Unhealthy.Contains(unit) {
			units[unit] = unavailableUnit
		}
	}
	if gpu.Ledger == nil {
		return units
	}
	for unit, mark := range gpu.Ledger.Units {
		if mark != freeUnit { // no claim is beyond the units that are shown
			units[unit] = mark
		}
	}
	return units
}

// newMemory sums up the units. The memory of a GPU without offered units does not count: in
// MIG mode its instances have it.
func newMemory(units []rune, unitMiB uint64, state allocator.GPUState) Memory {
	m := Memory{OfferedMiB: uint64(len(units)) * unitMiB}
	if state.Units > 0 {
		m.WholeMiB, m.UsedMiB = state.MemoryMiB, state.UsedMiB
	}
	for _, unit := range units {
		switch unit {
		case freeUnit:
			m.FreeMiB += unitMiB
		case unavailableUnit:
			m.UnavailableMiB += unitMiB
		default:
			m.ClaimedMiB += unitMiB
		}
	}
	return m
}

func newClaim(claim allocator.Claim, mark string, unitMiB uint64) Claim {
	return Claim{
		Mark: mark, Owner: claim.Owner, State: claim.State, Container: claim.Container,
		Units: claim.Units, UnitCount: len(claim.Units), MiB: uint64(len(claim.Units)) * unitMiB,
		ClaimedAt: claim.ClaimedAt, RunningAt: claim.RunningAt, ExpiresAt: claim.ExpiresAt,
	}
}

func (c Cordon) note() string {
	note := "cordoned"
	if !c.At.IsZero() {
		note += " since " + c.At.UTC().Format(time.RFC3339)
	}
	if c.Reason != "" {
		note += ": " + c.Reason
	}
	if c.Release {
		note += "; to be released for a reset"
	}
	return note
}

// notes returns remarks that the numbers do not show.
func notes(gpu allocator.GPU, g GPU) []string {
	notes := []string{}
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if gpu.Ledger == nil {
		add("its claims cannot be read, so no task can start on it: see the problems")
	}
	if !g.Reported {
		add("no device plugin reports this GPU; its claims stay until their tasks are gone")
		return notes
	}
	if g.Cordon != nil {
		add("%s", g.Cordon.note())
	}
	switch {
	case g.Cordon != nil && !g.Cordon.Release && strings.HasPrefix(g.Health, "cordoned"): // the device plugin repeats the cordon
	case g.Health != "" && len(g.Unhealthy) > 0 && len(g.Unhealthy) < gpu.State.Units:
		add("units %s are unhealthy: %s", g.Unhealthy, g.Health)
	case g.Health != "":
		add("unhealthy: %s", g.Health)
	}
	if len(g.Claims) > 0 && g.UnitMiB != gpu.State.UnitMiB {
		add("offered in units of %d MiB now; no task can start until those with units of %d MiB have ended",
			gpu.State.UnitMiB, g.UnitMiB)
	}
	if over := gpu.Overclaimed(); over > 0 {
		add("its claims exceed its offered memory by %d MiB: tasks may run out of memory", over)
	}
	if g.UnmanagedMiB > 0 {
		add("%d MiB in use by processes that hold no slice, or by tasks beyond theirs", g.UnmanagedMiB)
	}
	if g.UnattributedMiB > 0 {
		add("%d MiB more in use than claimed, by processes that cannot be attributed", g.UnattributedMiB)
	}
	return notes
}
