package planner

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/hashicorp/nomad/api"
)

// ReadJob reads a job as Nomad's API has it, bare or under "Job", as `nomad job
// inspect`, requests to Nomad and newer proxies have it. It returns the text of
// the job alone as well. Nomad refuses a job with null in one of its lists, and
// so does this.
func ReadJob(text []byte) (*api.Job, []byte, error) {
	var wrapped struct{ Job json.RawMessage }
	if json.Unmarshal(text, &wrapped) == nil && len(wrapped.Job) > 0 {
		text = wrapped.Job
	}
	var job api.Job
	switch err := json.Unmarshal(text, &job); {
	case err != nil:
		return nil, nil, fmt.Errorf("no job as Nomad's API has it: %w", err)
	case job.ID == nil || *job.ID == "":
		return nil, nil, errors.New("no job as Nomad's API has it: it has no ID")
	case hasNull(reflect.ValueOf(job)):
		return nil, nil, fmt.Errorf("job %s has null in a list", *job.ID)
	}
	return &job, text, nil
}

// hasNull reports whether a list or map, at any depth, has an entry that is
// nothing. Fields may be: those have defaults.
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
