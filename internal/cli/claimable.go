// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"fmt"
	"time"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/words"
)

// claimable returns an error if no unit of a GPU can be claimed: it is cordoned, its node
// is dead, or it is lost or unhealthy.
func claimable(snapshot *allocator.Snapshot, gpu allocator.GPU, now time.Time) error {
	name := gpu.State.Node
	if name == "" {
		return fmt.Errorf("GPU %s cannot be claimed: no device plugin reports it", gpu.ID)
	}
	if c := gpu.Cordon; c != nil {
		why := ""
		if c.Reason != "" {
			why = " (" + words.Printable(c.Reason) + ")"
		}
		return fmt.Errorf("GPU %s cannot be claimed: it is cordoned%s; take another, or run `nomad-gpu-mem uncordon %s` first", gpu.ID, why, gpu.ID)
	}
	for _, node := range snapshot.Nodes {
		if node.Name != name {
			continue
		}
		if snapshot.IsDead(node, now) {
			return fmt.Errorf("GPU %s cannot be claimed: its node %s is dead, its device plugin last reported at %s; take another GPU",
				gpu.ID, name, node.LastSeen.Format(time.RFC3339))
		}
		if why := gpu.Withdrawn(node); why != "" {
			return fmt.Errorf("GPU %s cannot be claimed: it is unhealthy on node %s: %s; take another GPU", gpu.ID, name, words.Printable(why))
		}
	}
	return nil
}

// withHealth adds to an error about missing units why some units are not offered.
func withHealth(err error, gpu allocator.GPU) error {
	if gpu.State.Health == "" {
		return err
	}
	return fmt.Errorf("%w; units %s are not offered: %s", err, gpu.State.Unhealthy, words.Printable(gpu.State.Health))
}
