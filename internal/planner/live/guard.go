// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"nomad-gpu-mem/internal/planner"
)

// ErrLoses is returned when a registered job would lose fields if it were submitted again,
// or has lost some.
var ErrLoses = errors.New("fields of the job would be lost")

// dryRun is a request for what registering a job would change.
type dryRun struct {
	Job  json.RawMessage
	Diff bool
}

// keepsAll asks Nomad what submitting a registered job with new pins would change, and
// returns an error if that is more than the pins. The servers compare with what they have
// stored: an older agent drops fields that it does not know, so neither it nor this program
// can notice that they are missing.
func (s *Site) keepsAll(ctx context.Context, plan *planner.Plan, text json.RawMessage) error {
	space, id := plan.Space, plan.ID
	var answer struct {
		Diff           *api.JobDiff
		JobModifyIndex uint64 // of the registered job
	}
	w := (&api.WriteOptions{Namespace: space}).WithContext(ctx)
	request := &dryRun{Job: text, Diff: true}
	if _, err := s.nomad.Raw().Write("/v1/job/"+url.PathEscape(id)+"/plan", request, &answer, w); err != nil {
		return nomadFailed("compare job "+id+" with new pins", err)
	}
	if answer.JobModifyIndex != plan.Index {
		return errOtherVersion
	}
	if lost := lostIn(answer.Diff); len(lost) > 0 {
		return fmt.Errorf("%w: %s. The agent at %s may be older than the servers; use another with --nomad-address, "+
			"or submit the job's file again", ErrLoses, strings.Join(lost, ", "), s.nomad.Address())
	}
	return nil
}

// keptAll compares a job that was submitted with new pins with its version before, unless
// another version was submitted meanwhile.
func (s *Site) keptAll(ctx context.Context, index uint64, before *planner.Document) error {
	space, id := namespace(before.Job), *before.Job.ID
	after, err := s.stored(ctx, space, id)
	if err != nil {
		return err
	}
	var now struct{ JobModifyIndex uint64 }
	if err := json.Unmarshal(after, &now); err != nil || now.JobModifyIndex != index {
		return err
	}
	lost, err := planner.Lost(before.Text, after)
	if err != nil {
		return fmt.Errorf("compare job %s with its earlier version: %w", id, err)
	}
	if len(lost) > 0 {
		return fmt.Errorf("%w: Nomad stored job %s without %s; `nomad job revert -namespace=%s %s %d` restores them",
			ErrLoses, id, strings.Join(lost, ", "), space, id, version(before.Job))
	}
	return nil
}

func version(job *api.Job) uint64 {
	if job.Version == nil {
		return 0
	}
	return *job.Version
}

// lostIn names what a diff removes or changes, except what the planner owns.
func lostIn(diff *api.JobDiff) []string {
	if diff == nil {
		return nil
	}
	lost := diffLosses("job", diff.Fields, diff.Objects)
	for _, group := range diff.TaskGroups {
		at := fmt.Sprintf("group %q", group.Name)
		if group.Type == deleted {
			lost = append(lost, at)
			continue
		}
		objects := withoutObjects(group.Objects, "Constraint", "Affinity")
		lost = append(lost, diffLosses(at, withoutFields(group.Fields, metaField(planner.MetaPlanned), metaField(planner.MetaLimits)), objects)...)
		for _, task := range group.Tasks {
			lost = append(lost, taskLosses(at, task)...)
		}
	}
	slices.Sort(lost)
	return slices.Compact(lost)
}

// deleted and edited are kinds of a difference.
const deleted, edited = "Deleted", "Edited"

func metaField(key string) string { return "Meta[" + key + "]" }

func taskLosses(group string, task *api.TaskDiff) []string {
	at := fmt.Sprintf("%s, task %q", group, task.Name)
	if task.Type == deleted {
		return []string{at}
	}
	var lost []string
	for _, object := range task.Objects {
		if object.Name != "Resources" || object.Type == deleted {
			continue
		}
		others := withoutObjects(object.Objects, "Device")
		lost = append(lost, diffLosses(at+": Resources", object.Fields, others)...)
		for _, device := range object.Objects {
			if device.Name == "Device" {
				fields := withoutFields(device.Fields, "Name", "Count")
				lost = append(lost, diffLosses(at+": Device", fields, withoutObjects(device.Objects, "Constraint", "Affinity"))...)
			}
		}
	}
	rest := slices.DeleteFunc(slices.Clone(task.Objects), func(o *api.ObjectDiff) bool {
		return o.Name == "Resources" && o.Type != deleted
	})
	return append(lost, diffLosses(at, task.Fields, rest)...)
}

// diffLosses names the fields and objects that are deleted or changed.
func diffLosses(at string, fields []*api.FieldDiff, objects []*api.ObjectDiff) []string {
	var lost []string
	for _, field := range fields {
		if field.Type == deleted || field.Type == edited {
			lost = append(lost, at+": "+field.Name)
		}
	}
	for _, object := range objects {
		if object.Type == deleted {
			lost = append(lost, at+": "+object.Name)
			continue
		}
		lost = append(lost, diffLosses(at+": "+object.Name, object.Fields, object.Objects)...)
	}
	return lost
}

func withoutObjects(all []*api.ObjectDiff, names ...string) []*api.ObjectDiff {
	return slices.DeleteFunc(slices.Clone(all), func(o *api.ObjectDiff) bool { return slices.Contains(names, o.Name) })
}

func withoutFields(all []*api.FieldDiff, names ...string) []*api.FieldDiff {
	return slices.DeleteFunc(slices.Clone(all), func(f *api.FieldDiff) bool { return slices.Contains(names, f.Name) })
}
