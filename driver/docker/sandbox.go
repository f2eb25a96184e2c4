// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/docker/docker/api/types/container"
)

// SandboxSpec describes the pause container of a task group.
type SandboxSpec struct {
	Name     string
	Hostname string            // empty: the daemon makes one
	Labels   map[string]string // by which it is known again
	Env      []string
	// PullTimeout and IdleTimeout bound the pull of the pause image.
	PullTimeout, IdleTimeout time.Duration
}

// Sandbox is a pause container: it does nothing but hold the network namespace that the containers of a group share.
type Sandbox struct {
	ID  string
	Key string // path of its network namespace
}

// CreateSandbox starts a pause container, or finds the running one of that name and labels: created is false then.
//
// It has no network of its own; others put interfaces into its namespace. So it must not be restarted by the daemon: it would
// come back with an empty namespace and look healthy. The next call replaces a sandbox that has ended, and callers
// furnish its namespace again.
//
// Errors: as of EnsureImage, Create and Start.
func (c *Client) CreateSandbox(ctx context.Context, spec SandboxSpec) (s Sandbox, created bool, err error) {
	there, err := c.Inspect(ctx, spec.Name)
	if err == nil && there.Running && carries(there.Labels, spec.Labels) {
		return Sandbox{there.ID, there.SandboxKey}, false, nil
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Sandbox{}, false, err
	}
	image, err := c.infraImage(ctx, spec)
	if err != nil {
		return Sandbox{}, false, fmt.Errorf("pause image of group networks (infra_image): %w", err)
	}
	s, err = c.startSandbox(ctx, spec, image.ID)
	return s, err == nil, err
}

const (
	sandboxRuntime = "runc" // Docker's own, whatever the daemon's default is: another one may give the container devices
	sandboxMemory  = 64 << 20
	sandboxPids    = 64 // the runtime itself needs some while it starts the container
)

// sandboxHost confines a pause container to doing nothing.
func sandboxHost(runtime string) *container.HostConfig {
	pids := int64(sandboxPids)
	return &container.HostConfig{
		NetworkMode:    "none",
		RestartPolicy:  container.RestartPolicy{Name: container.RestartPolicyDisabled},
		Runtime:        runtime,
		CapDrop:        []string{"ALL"},
		SecurityOpt:    []string{"no-new-privileges"},
		ReadonlyRootfs: true,
		Resources:      container.Resources{Memory: sandboxMemory, MemorySwap: sandboxMemory, PidsLimit: &pids},
	}
}

func (c *Client) startSandbox(ctx context.Context, spec SandboxSpec, image string) (Sandbox, error) {
	create := func(runtime string) (id string, err error) {
		return c.Create(ctx, Spec{
			Name:   spec.Name,
			Config: &container.Config{Image: image, Hostname: spec.Hostname, Labels: spec.Labels, Env: spec.Env},
			Host:   sandboxHost(runtime),
		})
	}
	id, err := create(sandboxRuntime)
	if errors.Is(err, ErrRuntimeMissing) { // as with engines that only speak like Docker
		id, err = create("")
	}
	if err != nil {
		return Sandbox{}, err
	}
	started, err := c.startAndInspect(ctx, id)
	if err != nil {
		// The start's failure is the one to tell; a leftover is replaced by the next call.
		_ = c.Remove(context.WithoutCancel(ctx), id)
		return Sandbox{}, err
	}
	return Sandbox{started.ID, started.SandboxKey}, nil
}

func (c *Client) startAndInspect(ctx context.Context, id string) (Container, error) {
	if err := c.Start(ctx, id); err != nil {
		return Container{}, err
	}
	return c.Inspect(ctx, id)
}

// RemoveSandbox ends and removes a pause container, and its namespace with it. A missing one is success.
func (c *Client) RemoveSandbox(ctx context.Context, id string) error {
	return c.Remove(ctx, id)
}
