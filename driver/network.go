package driver

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/driver/docker"
)

// sandboxHostname is a label that Nomad reads by this name.
const sandboxHostname = "docker_sandbox_hostname"

// CreateNetwork starts the pause container whose network namespace the tasks of a
// group share. created is false if it was there already.
func (p *Plugin) CreateNetwork(allocID string, request *drivers.NetworkCreateRequest) (spec *drivers.NetworkIsolationSpec, created bool, err error) {
	s, err := p.serving()
	if err != nil {
		return nil, false, err
	}
	if err := s.keeper.custody.take(p.ctx, custodyOf(allocID)); err != nil {
		return nil, false, err
	}
	defer s.keeper.custody.giveUp(custodyOf(allocID))
	s.sandboxes.touch(allocID)
	hostname := ""
	if request != nil {
		hostname = request.Hostname
	}
	sandbox, created, err := p.createSandbox(s, allocID, docker.SandboxSpec{
		Name:        sandboxName(allocID),
		Hostname:    hostname,
		Labels:      map[string]string{labelSandbox: allocID},
		PullTimeout: s.settings.infraTimeout,
	})
	if err != nil {
		return nil, false, fmt.Errorf("the group's network cannot be made: %w; infra_image is %q", err, s.settings.InfraImage)
	}
	labels := map[string]string{sandboxContainer: sandbox.ID}
	if hostname != "" { // else Nomad names the group in its hosts file by the container
		labels[sandboxHostname] = hostname
	}
	return &drivers.NetworkIsolationSpec{Mode: drivers.NetIsolationModeGroup, Path: sandbox.Key, Labels: labels}, created, nil
}

// DestroyNetwork removes the pause container. After a restart Nomad may have no spec;
// the label finds it then.
func (p *Plugin) DestroyNetwork(allocID string, spec *drivers.NetworkIsolationSpec) error {
	s, err := p.serving()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(p.ctx, settleTimeout)
	defer cancel()
	id := ""
	if spec != nil {
		id = spec.Labels[sandboxContainer]
	}
	if id == "" {
		sandbox, err := p.findSandbox(ctx, s, allocID)
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
func (o *order) driverNetwork(found docker.Container) *drivers.DriverNetwork {
	out := &drivers.DriverNetwork{
		PortMap:       o.job.PortMap,
		IP:            found.IP,
		AutoAdvertise: found.IP != "" && found.NetworkName != "bridge",
	}
	if o.job.AdvertiseIPv6Address && net.ParseIP(found.IPv6).IsGlobalUnicast() {
		out.IP, out.AutoAdvertise = found.IPv6, true
	}
	return out
}
