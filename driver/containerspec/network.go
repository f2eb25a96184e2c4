// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/go-connections/nat"
	"github.com/hashicorp/nomad/client/taskenv"
	"github.com/hashicorp/nomad/plugins/drivers"
)

// SandboxContainer is the label under which Nomad hands a group's network back to
// its tasks; the name is part of Nomad's interface.
const SandboxContainer = "docker_sandbox_container_id"

// networking joins the container to its network. Files that Nomad generates for a
// group's network take the place of Docker's own DNS and hosts settings.
func (b *builder) networking() error {
	c := b.Job
	mode := c.NetworkMode
	if mode == "" {
		mode = GroupNetwork(b.Task)
	}
	if mode == "" {
		mode = "default"
	}
	b.host.NetworkMode = container.NetworkMode(mode)
	b.config.Hostname = c.Hostname
	b.dns()
	if !b.hasFile("/etc/hosts") {
		b.host.ExtraHosts = c.ExtraHosts
	}
	b.endpoint()
	return nil
}

// GroupNetwork is the mode that joins a group's network, or "".
func GroupNetwork(task *drivers.TaskConfig) string {
	if task.NetworkIsolation == nil || task.NetworkIsolation.Labels[SandboxContainer] == "" {
		return ""
	}
	return "container:" + task.NetworkIsolation.Labels[SandboxContainer]
}

func (b *builder) dns() {
	if b.hasFile("/etc/resolv.conf") {
		if len(b.Job.DNSServers)+len(b.Job.DNSSearchDomains)+len(b.Job.DNSOptions) > 0 {
			b.remark("config.dns_servers, dns_search_domains and dns_options have no effect: the group's dns block decides")
		}
		return
	}
	for _, server := range b.Job.DNSServers {
		if net.ParseIP(server) == nil {
			b.remark("config.dns_servers: %q was left out, it is not an IP address", server)
			continue
		}
		b.host.DNS = append(b.host.DNS, server)
	}
	b.host.DNSSearch = b.Job.DNSSearchDomains
	b.host.DNSOptions = b.Job.DNSOptions
}

func (b *builder) endpoint() {
	c := b.Job
	if len(c.NetworkAliases) == 0 && c.IPv4Address == "" && c.IPv6Address == "" {
		return
	}
	settings := &network.EndpointSettings{Aliases: c.NetworkAliases}
	if c.IPv4Address != "" || c.IPv6Address != "" {
		settings.IPAMConfig = &network.EndpointIPAMConfig{IPv4Address: c.IPv4Address, IPv6Address: c.IPv6Address}
	}
	b.network.EndpointsConfig = map[string]*network.EndpointSettings{string(b.host.NetworkMode): settings}
}

// ports publishes what the job asks for: by label from the group's network, or, in
// the old form, every port of the task's own network. Within a group's own network
// namespace nothing is published: Nomad forwards those ports.
func (b *builder) ports() error {
	published := publisher{exposed: nat.PortSet{}, bindings: nat.PortMap{}}
	var err error
	switch {
	case len(b.Job.Ports) > 0 && b.host.NetworkMode.IsContainer():
	case len(b.Job.Ports) > 0:
		err = b.groupPorts(&published)
	default:
		err = b.taskPorts(&published)
	}
	if err != nil {
		return err
	}
	if len(published.exposed) > 0 {
		b.config.ExposedPorts = published.exposed
	}
	if len(published.bindings) > 0 && !b.host.NetworkMode.IsContainer() {
		b.host.PortBindings = published.bindings
	}
	if b.host.NetworkMode.IsContainer() {
		b.config.ExposedPorts = nil // Docker refuses them there
	}
	if len(b.Job.PortMap) > 0 {
		b.env = taskenv.SetPortMapEnvs(b.env, b.Job.PortMap)
	}
	return nil
}

func (b *builder) groupPorts(published *publisher) error {
	if !b.hasGroupPorts() {
		return b.taskPorts(published)
	}
	for _, label := range b.Job.Ports {
		port, ok := b.Task.Resources.Ports.Get(label)
		if !ok {
			return fmt.Errorf("Port %q not found, check network block", label)
		}
		inside := port.To
		if inside == 0 {
			inside = port.Value
		}
		published.add(port.HostIP, port.Value, inside)
	}
	return nil
}

func (b *builder) hasGroupPorts() bool {
	return b.Task.Resources != nil && b.Task.Resources.Ports != nil
}

func (b *builder) taskPorts(published *publisher) error {
	portMap := b.Job.PortMap
	resources := b.Task.Resources
	if resources == nil || resources.NomadResources == nil || len(resources.NomadResources.Networks) == 0 {
		switch {
		case len(portMap) == 0:
			return nil
		case b.hasGroupPorts():
			return fmt.Errorf("config.port_map: 'port_map' cannot map group network ports, use 'ports' instead")
		}
		return fmt.Errorf("config.port_map: Trying to map ports but no network interface is available: give the group a network block")
	}
	own := resources.NomadResources.Networks[0]
	for _, port := range slices.Concat(own.ReservedPorts, own.DynamicPorts) {
		inside, mapped := portMap[port.Label]
		if !mapped {
			inside = port.Value
		}
		published.add(own.IP, port.Value, inside)
	}
	return nil
}

// publisher collects ports. Each is published for TCP and UDP.
type publisher struct {
	exposed  nat.PortSet
	bindings nat.PortMap
}

func (p *publisher) add(hostIP string, outside, inside int) {
	for _, protocol := range []string{"tcp", "udp"} {
		port := nat.Port(strconv.Itoa(inside) + "/" + protocol)
		p.exposed[port] = struct{}{}
		p.bindings[port] = append(p.bindings[port], nat.PortBinding{HostIP: strings.TrimSpace(hostIP), HostPort: strconv.Itoa(outside)})
	}
}
