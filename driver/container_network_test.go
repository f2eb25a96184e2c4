package driver

import (
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
		spec := build(t, newOrder(t, `
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
		spec := build(t, newOrder(t, `
			network_mode = "backend"
			network_aliases = ["web"]
			ipv4_address = "172.18.0.9"`, ``))
		endpoint := spec.Network.EndpointsConfig["backend"]
		must.Eq(t, []string{"web"}, endpoint.Aliases)
		must.Eq(t, "172.18.0.9", endpoint.IPAMConfig.IPv4Address)
	})
	t.Run("group network", func(t *testing.T) {
		t.Parallel()
		o := newOrder(t, `
			extra_hosts = ["a:1.2.3.4"]
			ports = ["http"]`, ``)
		o.task.NetworkIsolation = &drivers.NetworkIsolationSpec{Labels: map[string]string{sandboxContainer: "abc"}}
		o.task.Resources.Ports = &structs.AllocatedPorts{{Label: "http", Value: 8080, To: 80}}
		o.files = []*drivers.MountConfig{{TaskPath: "/etc/hosts", HostPath: "/x/hosts"}}
		spec := build(t, o)
		must.Eq(t, "container:abc", string(spec.Host.NetworkMode))
		must.SliceEmpty(t, spec.Host.ExtraHosts) // they are in the file
		must.MapEmpty(t, spec.Host.PortBindings) // Nomad forwards them
		must.MapEmpty(t, spec.Config.ExposedPorts)
	})
	t.Run("a mode of the job's own goes before the group's", func(t *testing.T) {
		t.Parallel()
		o := newOrder(t, `network_mode = "host"`, ``)
		o.task.NetworkIsolation = &drivers.NetworkIsolationSpec{Labels: map[string]string{sandboxContainer: "abc"}}
		must.Eq(t, "host", string(build(t, o).Host.NetworkMode))
	})
}

func TestContainerPorts(t *testing.T) {
	t.Parallel()
	t.Run("group ports by label", func(t *testing.T) {
		t.Parallel()
		o := newOrder(t, `ports = ["http", "same"]`, ``)
		o.task.Resources.Ports = &structs.AllocatedPorts{
			{Label: "http", Value: 8080, To: 80, HostIP: "10.0.0.1"},
			{Label: "same", Value: 9090, HostIP: "10.0.0.1"},
			{Label: "unlisted", Value: 7070, HostIP: "10.0.0.1"},
		}
		spec := build(t, o)
		must.Eq(t, nat.PortMap{
			"80/tcp":   {{HostIP: "10.0.0.1", HostPort: "8080"}},
			"80/udp":   {{HostIP: "10.0.0.1", HostPort: "8080"}},
			"9090/tcp": {{HostIP: "10.0.0.1", HostPort: "9090"}},
			"9090/udp": {{HostIP: "10.0.0.1", HostPort: "9090"}},
		}, spec.Host.PortBindings)
		must.MapLen(t, 4, spec.Config.ExposedPorts)
	})
	t.Run("task network and port_map", func(t *testing.T) {
		t.Parallel()
		o := newOrder(t, `port_map { http = 80 }`, ``)
		o.task.Env = map[string]string{"NOMAD_PORT_http": "8080"}
		o.task.Resources.NomadResources.Networks = structs.Networks{{
			IP: "10.0.0.1", DynamicPorts: []structs.Port{{Label: "http", Value: 8080}},
			ReservedPorts: []structs.Port{{Label: "admin", Value: 9000}},
		}}
		spec := build(t, o)
		must.Eq(t, []nat.PortBinding{{HostIP: "10.0.0.1", HostPort: "8080"}}, spec.Host.PortBindings["80/tcp"])
		must.Eq(t, []nat.PortBinding{{HostIP: "10.0.0.1", HostPort: "9000"}}, spec.Host.PortBindings["9000/udp"])
		must.SliceContains(t, spec.Config.Env, "NOMAD_PORT_http=80")
		must.Eq(t, "8080", o.task.Env["NOMAD_PORT_http"], must.Sprint("building changes nothing"))
	})
}
