// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/hashicorp/nomad/api"
)

// Operation is an operation of a JSON Patch (RFC 6902): "add", "replace" or "remove".
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Patch returns the patch that turns the job into the planned one. It changes only what the
// planner owns: entries of a group's constraints, affinities and meta, and of each device
// block its name, its count and entries of its constraints and affinities. All other
// entries stay unchanged.
func (d *Document) Patch(plan *Plan) ([]Operation, error) {
	if len(plan.Groups) == 0 {
		return []Operation{}, nil
	}
	tree, err := decodeTree(d.Text)
	if err != nil {
		return nil, err
	}
	before, err := canonical(d.Job)
	if err != nil {
		return nil, err
	}
	p := &patcher{operations: []Operation{}}
	for g, group := range before.TaskGroups {
		if err := p.group(cursor{node: tree}, g, group, plan.Job.TaskGroups[g]); err != nil {
			return nil, fmt.Errorf("patch job %s: %w", deref(d.Job.ID), err)
		}
	}
	return p.operations, nil
}

// Apply returns the job's JSON with the operations applied. Everything else stays
// unchanged, apart from white space.
func (d *Document) Apply(operations []Operation) (json.RawMessage, error) {
	if len(operations) == 0 {
		return d.Text, nil
	}
	data, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("patch job %s: %w", deref(d.Job.ID), err)
	}
	patch, err := jsonpatch.DecodePatch(data)
	if err != nil {
		return nil, fmt.Errorf("patch job %s: %w", deref(d.Job.ID), err)
	}
	changed, err := patch.Apply(d.Text)
	if err != nil {
		return nil, fmt.Errorf("patch job %s: %w", deref(d.Job.ID), err)
	}
	return changed, nil
}

// patcher collects the operations of one job.
type patcher struct{ operations []Operation }

func (p *patcher) group(job cursor, g int, before, after *api.TaskGroup) error {
	group, err := job.walk("TaskGroups", g)
	if err != nil {
		return err
	}
	if err := changeList(p, group, "Constraints", before.Constraints, after.Constraints); err != nil {
		return err
	}
	if err := changeList(p, group, "Affinities", before.Affinities, after.Affinities); err != nil {
		return err
	}
	if err := p.meta(group, before.Meta, after.Meta); err != nil {
		return err
	}
	for t, task := range before.Tasks {
		if task.Resources == nil {
			continue
		}
		for i, device := range task.Resources.Devices {
			entry, err := group.walk("Tasks", t, "Resources", "Devices", i)
			if err != nil {
				return err
			}
			if err := p.device(entry, device, after.Tasks[t].Resources.Devices[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *patcher) device(entry cursor, before, after *api.RequestedDevice) error {
	if before.Name != after.Name {
		if err := p.set(entry, "Name", after.Name); err != nil {
			return err
		}
	}
	if !reflect.DeepEqual(before.Count, after.Count) {
		if err := p.set(entry, "Count", after.Count); err != nil {
			return err
		}
	}
	if err := changeList(p, entry, "Constraints", before.Constraints, after.Constraints); err != nil {
		return err
	}
	return changeList(p, entry, "Affinities", before.Affinities, after.Affinities)
}

func (p *patcher) set(object cursor, name string, value any) error {
	field, err := object.in(name)
	if err == nil {
		p.add("add", field.path, value)
	}
	return err
}

// meta changes keys one by one.
func (p *patcher) meta(group cursor, before, after map[string]string) error {
	meta, err := group.in("Meta")
	switch {
	case err != nil:
		return err
	case maps.Equal(before, after):
		return nil
	case len(before) == 0:
		p.add("add", meta.path, after)
		return nil
	case len(after) == 0:
		p.add("remove", meta.path, nil)
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if _, stays := after[key]; !stays {
			p.add("remove", meta.with(key), nil)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if value, had := before[key]; !had || value != after[key] {
			p.add("add", meta.with(key), after[key])
		}
	}
	return nil
}

// changeList replaces the part of a list that differs, between the common beginning and the
// common end.
func changeList[T any](p *patcher, object cursor, name string, before, after []T) error {
	list, err := object.in(name)
	if err != nil {
		return err
	}
	if entries, _ := list.node.([]any); len(entries) != len(before) {
		return fmt.Errorf("%s has %d entries, want %d", cursorPath(list.path), len(entries), len(before))
	}
	switch {
	case len(before) == 0 && len(after) == 0:
		return nil
	case len(before) == 0:
		p.add("add", list.path, after)
		return nil
	case len(after) == 0:
		p.add("remove", list.path, nil)
		return nil
	}
	head, tail := 0, 0
	most := min(len(before), len(after))
	for head < most && reflect.DeepEqual(before[head], after[head]) {
		head++
	}
	for tail < most-head && reflect.DeepEqual(before[len(before)-1-tail], after[len(after)-1-tail]) {
		tail++
	}
	for i := len(before) - tail - 1; i >= head; i-- {
		p.add("remove", list.with(strconv.Itoa(i)), nil)
	}
	for i := head; i < len(after)-tail; i++ {
		p.add("add", list.with(strconv.Itoa(i)), after[i])
	}
	return nil
}

func (p *patcher) add(op string, path []string, value any) {
	p.operations = append(p.operations, Operation{Op: op, Path: pointer(path...), Value: value})
}
