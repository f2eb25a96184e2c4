package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/hashicorp/nomad/api"

	"nomad-gpu-mem/internal/planner"
)

// operation is one of a JSON Patch, RFC 6902.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// diff makes the patch that turns the job into the planned one. It touches the
// four parts that pins are in, each as a whole: "add" replaces what is there, and
// all other fields stay, also those of a newer Nomad.
func diff(job *api.Job, plan *planner.Plan) ([]operation, error) {
	patch := []operation{}
	if len(plan.Groups) == 0 {
		return patch, nil
	}
	for g, before := range job.TaskGroups {
		after := plan.Job.TaskGroups[g]
		path := fmt.Sprintf("/TaskGroups/%d", g)
		parts := []struct {
			path          string
			before, after any
		}{
			{path + "/Constraints", before.Constraints, after.Constraints},
			{path + "/Affinities", before.Affinities, after.Affinities},
			{path + "/Meta", before.Meta, after.Meta},
		}
		for t, task := range before.Tasks {
			if task.Resources != nil {
				at := fmt.Sprintf("%s/Tasks/%d/Resources/Devices", path, t)
				parts = append(parts, struct {
					path          string
					before, after any
				}{at, task.Resources.Devices, after.Tasks[t].Resources.Devices})
			}
		}
		for _, part := range parts {
			different, err := differs(part.before, part.after)
			if err != nil {
				return nil, err
			}
			if different {
				patch = append(patch, operation{Op: "add", Path: part.path, Value: part.after})
			}
		}
	}
	return patch, nil
}

// differs compares values as they travel.
func differs(a, b any) (bool, error) {
	one, err := json.Marshal(a)
	if err != nil {
		return false, err
	}
	other, err := json.Marshal(b)
	return !bytes.Equal(one, other), err
}

// apply changes the job as it came, so that no field gets lost.
func apply(job []byte, operations []operation) ([]byte, error) {
	data, err := json.Marshal(operations)
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.DecodePatch(data)
	if err != nil {
		return nil, err
	}
	return patch.Apply(job)
}
