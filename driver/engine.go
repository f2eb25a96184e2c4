// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"time"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/attempt"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/images"
)

// Engine is what the driver needs of a container engine. docker.Client is one;
// errors are those that package docker documents.
type Engine interface {
	images.Engine
	Containers
	Sandboxes
	Info(ctx context.Context) (docker.Info, error)
	Close() error
}

// Containers is the life of a container and what can be asked of it. ID identifies
// the engine that has them: another engine knows nothing of them.
type Containers interface {
	ID(ctx context.Context) (string, error)
	Create(ctx context.Context, spec docker.Spec) (id string, err error)
	Start(ctx context.Context, id string) error
	Wait(ctx context.Context, id string) (docker.Exit, error)
	Stop(ctx context.Context, id, signal string, timeout time.Duration) error
	Signal(ctx context.Context, id, signal string) error
	Remove(ctx context.Context, id string) error
	SetCPUs(ctx context.Context, id, cpus string) error
	Inspect(ctx context.Context, id string) (docker.Container, error)
	List(ctx context.Context, labels map[string]string) ([]docker.Container, error)
	Stats(ctx context.Context, id string) (docker.Sample, error)
	Logs(ctx context.Context, id string, from docker.LogPosition, tty bool, stdout, stderr docker.LineSink) error
	Exec(ctx context.Context, id string, cmd []string, limit int) (docker.ExecResult, error)
	ExecStream(ctx context.Context, id string, req docker.ExecStreamRequest) (code int, err error)
}

// Sandboxes are the pause containers that hold a task group's network.
type Sandboxes interface {
	CreateSandbox(ctx context.Context, spec docker.SandboxSpec) (sandbox docker.Sandbox, created bool, err error)
	RemoveSandbox(ctx context.Context, id string) error
}

// Table is what the plugin needs of the allocation table. *allocator.Table is one.
type Table interface {
	taskTable
	attempt.Table
}

// taskTable is the part of the table that everything but package attempt gets. It cannot release a claim.
type taskTable interface {
	Claim(ctx context.Context, owner allocator.Owner, attempt allocator.Attempt, bookings []allocator.Booking) error
	Running(ctx context.Context, owner allocator.Owner, attempt, container string, gpus []allocator.GPUID) error
	Assert(ctx context.Context, owner allocator.Owner, attempt allocator.Attempt, container string, bookings []allocator.Booking) error
	StartFailed(ctx context.Context, gpus []allocator.GPUID, reason string) error
	Inspect(ctx context.Context, gpu allocator.GPUID) (allocator.GPU, error)
	Node(ctx context.Context, name allocator.NodeName) (allocator.NodeState, error)
	State(ctx context.Context, gpu allocator.GPUID) (allocator.GPUState, error)
	Reach(ctx context.Context) error
	Writable(ctx context.Context) error
	Close() error
}

var (
	_ Engine = (*docker.Client)(nil)
	_ Table  = (*allocator.Table)(nil)
)
