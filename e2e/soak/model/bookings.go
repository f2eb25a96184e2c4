// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"fmt"
	"slices"
	"time"
)

// Sees compares the GPUs that a container sees with those of which Nomad booked units
// for its task.
func (t *Timeline) Sees(c Container, seen []string, at time.Time) []Violation {
	booked, known := t.Booked(c.Task)
	if !known {
		return nil
	}
	var allowed []string
	for _, unit := range booked {
		allowed = append(allowed, unit.GPU)
	}
	for _, gpu := range seen {
		if !slices.Contains(allowed, gpu) && t.first("exposed", c.ID, gpu) {
			slices.Sort(allowed)
			return []Violation{{Kind: Exposed, At: at, Text: fmt.Sprintf(
				"container %s of task %s sees GPU %s; Nomad booked units of %v", c.Name, c.Task, gpu, slices.Compact(allowed))}}
		}
	}
	return nil
}
