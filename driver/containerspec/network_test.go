// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/docker/go-connections/nat"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"
)

func TestContainerNetwork(t *testing.T) {
	t.Parallel()
	t.Run("default", func(t *testing.T) {
		t.Parallel()
		spec := build(t, newInput(t, `
			hostname = "h"
			mac_address = "02:68:b3:29:da:98"
			dns_servers = ["1.1.1.1"]
			dns_search_domains = ["example.org"]
			dns_options = ["ndots:1"]
			extra_hosts = ["a:1.2.3.4"]`, ``))
		must.Eq(t, "default", string(spec.Host.NetworkMode))
		must.Eq(t, "h", spec.Config.Hostname)
		must.Eq(t, "02:68:b3:29:da:98", spec.MAC)
		must.MapEmpty(t, spec.Network.EndpointsConfig)
		must.Eq(t, []string{"1.1.1.1"}, spec.Host.DNS)
		must.Eq(t, []string{"example.org"}, spec.Host.DNSSearch)
		must.Eq(t, []string{"ndots:1"}, spec.Host.DNSOptions)
		must.Eq(t, []string{"a:1.2.3.4"}, spec.Host.ExtraHosts)
	})
	t.Run("own network", func(t *testing.T) {
		t.Parallel()
		spec := build(t, newInput(t, `
			network_mode = "backend"
			network_aliases = ["web"]
			ipv4_address = "172.18.0.9"`, ``))
		endpoint := spec.Network.EndpointsConfig["backend"]
		must.Eq(t, []string{"web"}, endpoint.Aliases)
		must.Eq(t, "172.18.0.9", endpoint.IPAMConfig.IPv4Address)
	})
	t.Run("group network", func(t *testing.T) {
		t.Parallel()
		in := newInput(t, `
			extra_hosts = ["a:1.2.3.4"]
			ports = ["http"]`, ``)
		in.Task.NetworkIsolation = &drivers.NetworkIsolationSpec{Labels: map[string]string{SandboxContainer: "abc"}}
		in.Task.Resources.Ports = &structs.AllocatedPorts{{Label: "http", Value: 8080, To: 80}}
		in.Files = []*drivers.MountConfig{{TaskPath: "/etc/hosts", HostPath: "/x/hosts"}}
		spec := build(t, in)
		must.Eq(t, "container:abc", string(spec.Host.NetworkMode))
		must.SliceEmpty(t, spec.Host.ExtraHosts) // they are in the file
		must.MapEmpty(t, spec.Host.PortBindings) // Nomad forwards them
		must.MapEmpty(t, spec.Config.ExposedPorts)
	})
	t.Run("a mode of the job's own goes before the group's", func(t *testing.T) {
		t.Parallel()
		in := newInput(t, `network_mode = "host"`, ``)
		in.Task.NetworkIsolation = &drivers.NetworkIsolationSpec{Labels: map[string]string{SandboxContainer: "abc"}}
		must.Eq(t, "host", string(build(t, in).Host.NetworkMode))
	})
}

// Ports of the group by label, of the task's own network in the old form, or none.
func TestContainerPorts(t *testing.T) {
	t.Parallel()
	group := &structs.AllocatedPorts{
		{Label: "http", Value: 8080, To: 80, HostIP: "10.0.0.1"},
		{Label: "also", Value: 8081, To: 80, HostIP: "10.0.0.1"},
		{Label: "same", Value: 9090, HostIP: "10.0.0.1"},
		{Label: "unlisted", Value: 7070, HostIP: "10.0.0.1"},
	}
	own := structs.Networks{{
		IP:            "10.0.0.1",
		ReservedPorts: []structs.Port{{Label: "admin", Value: 9000}},
		DynamicPorts:  []structs.Port{{Label: "http", Value: 8080}},
	}}
	for _, c := range []struct {
		name, hcl string
		group     *structs.AllocatedPorts
		own       structs.Networks
		want      map[int][]int // outside, by inside
		refused   string
	}{
		{name: "by label", hcl: `ports = ["http", "same"]`, group: group, want: map[int][]int{80: {8080}, 9090: {9090}}},
		{name: "two on one port", hcl: `ports = ["http", "also"]`, group: group, want: map[int][]int{80: {8080, 8081}}},
		{name: "none listed", group: group},
		{name: "unknown label", hcl: `ports = ["htpp"]`, group: group, refused: `Port "htpp" not found, check network block`},
		{name: "labels without group ports", hcl: `ports = ["http"]`},
		{name: "labels, but only a network of the task's own", hcl: `ports = ["http"]`, own: own, want: map[int][]int{8080: {8080}, 9000: {9000}}},
		{name: "in another's network", hcl: "ports = [\"htpp\"]\nnetwork_mode = \"container:x_" + allocID + "\"", group: group},
		{name: "one to one", own: own, want: map[int][]int{8080: {8080}, 9000: {9000}}},
		{name: "port_map", hcl: `port_map { http = 80 }`, own: own, want: map[int][]int{80: {8080}, 9000: {9000}}},
		{name: "port_map in another's network", hcl: "port_map { http = 80 }\nnetwork_mode = \"container:x_" + allocID + "\"", own: own},
		{name: "port_map for group ports", hcl: `port_map { http = 80 }`, group: group,
			refused: "'port_map' cannot map group network ports, use 'ports' instead"},
		{name: "port_map without a network", hcl: `port_map { http = 80 }`, refused: "no network interface is available"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in := newInput(t, c.hcl, ``)
			in.Task.Resources.Ports, in.Task.Resources.NomadResources.Networks = c.group, c.own
			spec, _, err := in.Build()
			if c.refused != "" {
				must.ErrorContains(t, err, c.refused)
				return
			}
			must.NoError(t, err)
			exposed, bindings := nat.PortSet{}, nat.PortMap{}
			for inside, outside := range c.want {
				for _, protocol := range []string{"tcp", "udp"} {
					port := nat.Port(fmt.Sprintf("%d/%s", inside, protocol))
					exposed[port] = struct{}{}
					for _, out := range outside {
						bindings[port] = append(bindings[port], nat.PortBinding{HostIP: "10.0.0.1", HostPort: strconv.Itoa(out)})
					}
				}
			}
			must.MapEq(t, bindings, spec.Host.PortBindings)
			must.MapEq(t, exposed, spec.Config.ExposedPorts)
		})
	}
}

func TestPortMapIsInTheEnvironment(t *testing.T) {
	t.Parallel()
	in := newInput(t, `port_map { http = 80 }`, ``)
	in.Task.Env = map[string]string{"NOMAD_PORT_http": "8080"}
	in.Task.Resources.NomadResources.Networks = structs.Networks{{DynamicPorts: []structs.Port{{Label: "http", Value: 8080}}}}
	must.SliceContains(t, build(t, in).Config.Env, "NOMAD_PORT_http=80")
	must.Eq(t, "8080", in.Task.Env["NOMAD_PORT_http"], must.Sprint("building changes nothing"))
}
