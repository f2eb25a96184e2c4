// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/driver/attempt"
	"nomad-gpu-mem/driver/config"
	"nomad-gpu-mem/driver/containerspec"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/label"
)

// sandboxHostname is a label that Nomad reads by this name.
const sandboxHostname = "docker_sandbox_hostname"

// CreateNetwork starts the pause container whose network namespace the tasks of a
// group share. created is false if it was there already. Nomad 1.6 drops the group's
// hostname on its way to a plugin that is a process of its own.
func (p *Plugin) CreateNetwork(allocID string, request *drivers.NetworkCreateRequest) (spec *drivers.NetworkIsolationSpec, created bool, err error) {
	s, err := p.serving()
	if err != nil {
		return nil, false, err
	}
	if err := s.reaper.Locks.Lock(p.ctx, sandboxLock(allocID)); err != nil {
		return nil, false, err
	}
	defer s.reaper.Locks.Unlock(sandboxLock(allocID))
	s.sandboxes.touch(allocID)
	s.dropBare(allocID)
	hostname := ""
	if request != nil {
		hostname = request.Hostname
	}
	sandbox, created, err := s.createSandbox(allocID, docker.SandboxSpec{
		Name:        label.SandboxName(allocID),
		Hostname:    hostname,
		Labels:      map[string]string{label.Sandbox: allocID},
		Env:         []string{containerspec.VisibleDevices + "=" + containerspec.NoDevices}, // over what its image says
		PullTimeout: s.settings.InfraPullLimit,
		IdleTimeout: s.settings.PullIdle,
	})
	if err != nil {
		return nil, false, fmt.Errorf("the group's network cannot be made: %w; infra_image is %q", err, s.settings.InfraImage)
	}
	labels := map[string]string{containerspec.SandboxContainer: sandbox.ID}
	if hostname != "" { // else Nomad names the group in its hosts file by the container
		labels[sandboxHostname] = hostname
	}
	return &drivers.NetworkIsolationSpec{Mode: drivers.NetIsolationModeGroup, Path: sandbox.Key, Labels: labels}, created, nil
}

// dropBare removes the group's pause container if it runs, but its namespace is
// bare. Nomad furnishes only one that the driver reports as created: the agent died
// before it came to it, or the container was restarted since.
func (s *services) dropBare(allocID string) {
	found, err := s.engine.Inspect(s.ctx, label.SandboxName(allocID))
	if err != nil || !found.Running || found.Labels[label.Sandbox] != allocID {
		return
	}
	if bare, err := s.sandboxes.proc.Deserted(found.Pid); err != nil || !bare {
		return
	}
	s.logger.Warn("a group's network has no interfaces and is created again", "container", found.Name)
	if err := s.engine.RemoveSandbox(s.ctx, found.ID); err != nil {
		s.logger.Error("a group network without interfaces cannot be removed", "container", found.Name, "error", err)
	}
}

// checkGroupNetwork fails a start into a group's network that is no more. Its interfaces
// are made once in an allocation's life, so to try again is of no use.
func (s *start) checkGroupNetwork() error {
	isolation := s.task.NetworkIsolation
	if s.input.Job.NetworkMode != "" || containerspec.GroupNetwork(s.task) == "" {
		return nil
	}
	id, fate := isolation.Labels[containerspec.SandboxContainer], ""
	found, err := s.services.engine.Inspect(s.ctx, id)
	switch {
	case errors.Is(err, docker.ErrNotFound):
		fate = "was removed"
	case err != nil:
		return fmt.Errorf("the group's network cannot be looked up: %w", err)
	case !found.Running:
		fate = "has ended"
	case found.SandboxKey != isolation.Path:
		fate = "was restarted"
	default:
		return nil
	}
	return fmt.Errorf("the group's network is gone: its pause container %s %s. Nomad makes a network once for each allocation, "+
		"so this one must be replaced: by its reschedule block, or with `nomad alloc stop %s`", id, fate, s.task.AllocID)
}

// DestroyNetwork removes the pause container. After a restart Nomad may have no spec;
// the label finds it then.
func (p *Plugin) DestroyNetwork(allocID string, spec *drivers.NetworkIsolationSpec) error {
	s, err := p.serving()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(p.ctx, attempt.CleanupTimeout)
	defer cancel()
	id := ""
	if spec != nil {
		id = spec.Labels[containerspec.SandboxContainer]
	}
	if id == "" {
		sandbox, err := s.findSandbox(ctx, allocID)
		if errors.Is(err, docker.ErrNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the group's network cannot be found: %w", err)
		}
		id = sandbox.ID
	}
	if err := s.engine.RemoveSandbox(ctx, id); err != nil {
		return fmt.Errorf("the group's network cannot be removed: %w", err)
	}
	return nil
}

// driverNetwork tells Nomad the address that the container got. Services advertise
// it if it is in a network of its own; Docker's default bridge is not reachable from
// other nodes.
func driverNetwork(job *config.TaskConfig, found docker.Container) *drivers.DriverNetwork {
	out := &drivers.DriverNetwork{
		PortMap:       job.PortMap,
		IP:            found.IP,
		AutoAdvertise: found.IP != "" && found.NetworkName != "bridge",
	}
	if job.AdvertiseIPv6Address && net.ParseIP(found.IPv6).IsGlobalUnicast() {
		out.IP, out.AutoAdvertise = found.IPv6, true
	}
	return out
}
