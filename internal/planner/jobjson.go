// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/hashicorp/nomad/api"
)

// Document is a job as JSON. Text is patched and submitted, so that fields that this
// program does not know are never lost. Job is the decoded part, used for planning only.
type Document struct {
	Job  *api.Job
	Text json.RawMessage
}

// ReadJob reads a job in the JSON of Nomad's API, bare or under "Job", as in `nomad job
// inspect`, requests to Nomad and newer proxies. Like Nomad it rejects a job with null in
// one of its lists.
func ReadJob(text []byte) (*Document, error) {
	var wrapped struct{ Job json.RawMessage }
	if json.Unmarshal(text, &wrapped) == nil && len(wrapped.Job) > 0 {
		text = wrapped.Job
	}
	var job api.Job
	switch err := json.Unmarshal(text, &job); {
	case err != nil:
		return nil, fmt.Errorf("invalid job, want the JSON of Nomad's API: %w", err)
	case job.ID == nil || *job.ID == "":
		return nil, errors.New("invalid job, want the JSON of Nomad's API: ID is missing")
	case hasNull(reflect.ValueOf(job)):
		return nil, fmt.Errorf("invalid job %s: null in a list", *job.ID)
	}
	return &Document{Job: &job, Text: text}, nil
}

// With returns the job with a top-level field set, unless the field has a value that is
// neither null nor "".
func (d *Document) With(field, value string) (*Document, error) {
	top, err := decodeTree(d.Text)
	if err != nil {
		return nil, err
	}
	name, old, err := member(top, field)
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", deref(d.Job.ID), err)
	}
	if old != nil && old != "" {
		return d, nil
	}
	changed, err := d.Apply([]Operation{{Op: "add", Path: pointer(name), Value: value}})
	if err != nil {
		return nil, err
	}
	return ReadJob(changed)
}

// hasNull reports whether a list or map, at any depth, has a null entry. Fields may be
// null: they have defaults.
func hasNull(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer:
		return !v.IsNil() && hasNull(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if hasNull(v.Field(i)) {
				return true
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if isNull(v.Index(i)) || hasNull(v.Index(i)) {
				return true
			}
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			if isNull(entries.Value()) || hasNull(entries.Value()) {
				return true
			}
		}
	}
	return false
}

func isNull(v reflect.Value) bool { return v.Kind() == reflect.Pointer && v.IsNil() }
