// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package attempt

import (
	"context"
	"fmt"
	"slices"
	"time"

	"nomad-gpu-mem/driver/docker"
)

// StuckAge is how long after its task's end a container that still runs counts as stuck. Usually its process hangs in the GPU's
// driver, where no signal reaches it.
const StuckAge = 5 * time.Minute

// MarkStuck marks the attempt's claims as stuck if its container still runs, so that the device plugin offers no further units of
// a GPU that hangs. The claims stay. If the daemon does not answer, nothing is known and nothing is marked.
func (r *Reaper) MarkStuck(ctx context.Context, a Record) error {
	if len(a.GPUs) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, CleanupTimeout)
	defer cancel()
	containers, err := r.containers(ctx, a)
	if err != nil || !slices.ContainsFunc(containers, func(c docker.Container) bool { return c.Running }) {
		return err
	}
	if err := r.table.Stuck(ctx, a.Owner, a.ID, a.GPUs); err != nil {
		return fmt.Errorf("its GPUs are still offered, since the table cannot be changed: %w", err)
	}
	return nil
}
