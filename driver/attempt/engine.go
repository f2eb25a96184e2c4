// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package attempt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/docker"
)

// Engine is what the end of an attempt needs of a container engine.
type Engine interface {
	ID(ctx context.Context) (string, error)
	Stop(ctx context.Context, id, signal string, timeout time.Duration) error
	Remove(ctx context.Context, id string) error
	Inspect(ctx context.Context, id string) (docker.Container, error)
	List(ctx context.Context, labels map[string]string) ([]docker.Container, error)
}

// Table is what the end of an attempt needs of the allocation table.
type Table interface {
	Release(ctx context.Context, owner allocator.Owner, attempt string, gpus []allocator.GPUID) error
	Stuck(ctx context.Context, owner allocator.Owner, attempt string, gpus []allocator.GPUID) error
	Inspect(ctx context.Context, gpu allocator.GPUID) (allocator.GPU, error)
	Node(ctx context.Context, name allocator.NodeName) (allocator.NodeState, error)
	State(ctx context.Context, gpu allocator.GPUID) (allocator.GPUState, error)
}

// ErrElsewhere is returned when the container belongs to another Docker engine than the one that answers. That this one does not
// know the container proves nothing.
var ErrElsewhere = errors.New("the container belongs to another Docker engine")

// SameEngine fails unless the engine that answers is the given one. A container of an unknown engine counts as this engine's.
func SameEngine(ctx context.Context, engine Engine, want string) error {
	if want == "" {
		return nil
	}
	got, err := engine.ID(ctx)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("%w: it was started in engine %s, but endpoint leads to engine %s now; "+
			"restore endpoint, or end the container there", ErrElsewhere, want, got)
	}
	return nil
}
