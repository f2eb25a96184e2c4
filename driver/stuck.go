// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"fmt"
	"slices"
	"time"

	"nomad-gpu-mem/driver/docker"
)

// stuckAge is how long after its task's end a container that still runs is taken for
// one that cannot be ended. Its process mostly hangs in the GPU's driver, where no signal
// reaches it.
const stuckAge = 5 * time.Minute

// lookForStuck looks whether a container runs on that should have ended, and tells the
// table if so. The claim stays, as with every container that is not proven gone; beyond
// that, nobody should be given a GPU that hangs. Of a daemon that does not answer nothing
// is known.
func (k *keeper) lookForStuck(ctx context.Context, a attempt) error {
	if len(a.GPUs) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	containers, err := k.containers(ctx, a)
	if err != nil || !slices.ContainsFunc(containers, func(c docker.Container) bool { return c.Running }) {
		return err
	}
	if err := k.table.Stuck(ctx, a.Owner, a.ID, a.GPUs); err != nil {
		return fmt.Errorf("its GPUs are still offered, since the table cannot be told: %w", err)
	}
	return nil
}
