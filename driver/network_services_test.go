// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package driver

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/helper/uuid"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/hashicorp/nomad/plugins/drivers/testutils"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/driver/containerspec"
	"nomad-gpu-mem/driver/label"
)

// furnish puts an interface into a group's network, as Nomad does, with an address.
func furnish(t *testing.T, sandbox, address string) {
	t.Helper()
	pid := dockerCommand(t, "inspect", "--format", "{{.State.Pid}}", sandbox)
	for _, args := range [][]string{
		{"link", "add", "eth0", "type", "veth", "peer", "name", "eth1"}, {"addr", "add", address + "/24", "dev", "eth0"}, {"link", "set", "eth0", "up"},
	} {
		out, err := exec.Command("nsenter", append([]string{"-t", pid, "-n", "ip"}, args...)...).CombinedOutput()
		must.NoError(t, err, must.Sprint(string(out)))
	}
}

// The tasks of a group share its network, its host name and its hosts file, also when
// Nomad's agent has restarted, and get a new one when the machine has.
func TestServiceGroupNetwork(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	d := w.boot()
	alloc := uuid.Generate()
	request := &drivers.NetworkCreateRequest{Hostname: "together"}
	create := func(wantCreated bool) *drivers.NetworkIsolationSpec {
		t.Helper()
		spec, created, err := d.plugin.CreateNetwork(alloc, request)
		must.NoError(t, err)
		must.Eq(t, wantCreated, created)
		return spec
	}
	create(true)
	spec := create(true) // the agent died before it furnished it
	t.Cleanup(func() { _ = d.plugin.DestroyNetwork(alloc, nil) })
	furnish(t, spec.Labels[containerspec.SandboxContainer], "10.99.0.1")
	spec.HostsConfig = &drivers.HostsConfig{Address: "10.99.0.1", Hostname: "together"}

	dir := filepath.Join(t.TempDir(), alloc)
	must.NoError(t, os.MkdirAll(filepath.Join(dir, "alloc", "logs"), 0o755))
	look := func(spec *drivers.NetworkIsolationSpec, hcl string) string {
		t.Helper()
		task, out := w.script(`hostname; ip -4 -o addr show eth0; grep -e together -e db /etc/hosts; cat /etc/resolv.conf; echo end`, hcl)
		task.AllocID, task.AllocDir = alloc, dir
		must.NoError(t, os.MkdirAll(task.TaskDir().LocalDir, 0o755))
		task.NetworkIsolation = spec
		task.DNS = &drivers.DNSConfig{Servers: []string{"10.99.0.53"}}
		d.run(t, task)
		must.True(t, d.ended(t, task).Successful())
		eventually(t, func() bool { return strings.Contains(out.Got(), "end\n") })
		return out.Got()
	}
	seen := look(spec, `extra_hosts = ["db:10.99.0.9"]`)
	for _, want := range []string{"together\n", "10.99.0.1/24", "10.99.0.1 together\n", "10.99.0.9 db\n", "nameserver 10.99.0.53\n"} {
		must.StrContains(t, seen, want)
	}

	again := create(false)
	must.Eq(t, spec.Path, again.Path)
	must.StrContains(t, look(again, ``), "10.99.0.1 together\n") // without Nomad's word for it

	dockerCommand(t, "restart", "--time", "0", spec.Labels[containerspec.SandboxContainer])
	task, _ := w.script(`true`, ``)
	task.NetworkIsolation = spec
	_, _, err := d.StartTask(task)
	must.ErrorContains(t, err, "was restarted")

	renewed := create(true)
	furnish(t, renewed.Labels[containerspec.SandboxContainer], "10.99.0.2")
	renewed.HostsConfig = &drivers.HostsConfig{Address: "10.99.0.2", Hostname: "together"}
	seen = look(renewed, ``)
	must.StrContains(t, seen, "10.99.0.2 together\n")
	must.StrNotContains(t, seen, "10.99.0.1 together\n")
}

func TestServiceNetworkModes(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	w.config += "\nallowed_modes { network = [\"container:*\"] }"
	d := w.boot()
	own := "driver-test-" + uuid.Short()
	dockerCommand(t, "network", "create", "--subnet", "10.212.77.0/24", own)
	t.Cleanup(func() { dockerCommand(t, "network", "rm", own) })

	server, _ := w.script(`while true; do echo hello | nc -l -p 80; done`, `
		network_mode = "`+own+`"
		network_aliases = ["web", "www"]
		ipv4_address = "10.212.77.9"
		mac_address = "02:68:b3:29:da:98"`)
	_, network := d.run(t, server)
	must.Eq(t, "10.212.77.9", network.IP)
	must.True(t, network.AutoAdvertise)
	id := dockerCommand(t, "ps", "--quiet", "--no-trunc", "--filter", "label="+label.Attempt+"="+server.ID)
	name := label.ContainerName(server.Name, server.AllocID)

	for _, c := range []struct{ name, script, hcl, want string }{
		{"own network, by alias", `nc www 80 </dev/null`, `network_mode = "` + own + `"`, "hello\n"},
		{"another container's, by ID", `nc 127.0.0.1 80 </dev/null; cat /sys/class/net/eth0/address`, `network_mode = "container:` + id + `"`,
			"hello\n02:68:b3:29:da:98\n"},
		{"another container's, by name", `nc 127.0.0.1 80 </dev/null`, `network_mode = "container:` + name + `"`, "hello\n"},
		{"none", `ls /sys/class/net | grep -c eth; true`, `network_mode = "none"`, "0\n"},
		{"bridge", `ip -o link show eth0 | wc -l`, `network_mode = "bridge"`, "1\n"},
		{"host", `ls -d /sys/class/net/gpumem` + os.Getenv("GPU_MEM_SLOT") + ` | wc -l`, `network_mode = "host"`, "1\n"},
		{"extra hosts and name", `hostname; grep -c 'db$' /etc/hosts`, "hostname = \"h\"\nextra_hosts = [\"db:10.0.0.1\"]", "h\n1\n"},
		{"DNS", `grep '^[a-z]' /etc/resolv.conf | sort`, // engines differ in the order, and in comments
			"dns_servers = [\"10.0.0.53\"]\ndns_search_domains = [\"example.org\"]\ndns_options = [\"ndots:1\"]",
			"nameserver 10.0.0.53\noptions ndots:1\nsearch example.org\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			task, out := w.script(c.script, c.hcl)
			d.run(t, task)
			must.True(t, d.ended(t, task).Successful())
			eventually(t, func() bool { return out.Got() == c.want })
		})
	}
}

// Nomad's own suite for what a group's dns block does.
func TestServiceDNS(t *testing.T) {
	for name, dns := range map[string]*drivers.DNSConfig{
		"none":    nil,
		"servers": {Servers: []string{"1.1.1.1", "1.0.0.1"}},
		"all": {
			Servers: []string{"1.1.1.1", "1.0.0.1"}, Searches: []string{"local.test", "node.consul"}, Options: []string{"ndots:2", "edns0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			harness, task := conformant(t)
			task.DNS = dns
			_, _, err := harness.StartTask(task)
			must.NoError(t, err)
			t.Cleanup(func() { must.NoError(t, harness.DestroyTask(task.ID, true)) })
			testutils.TestTaskDNSConfig(t, harness, task.ID, dns)
		})
	}
}

// conformant is a driver as Nomad's own suites take it, and a task that lives long.
func conformant(t *testing.T) (*testutils.DriverHarness, *drivers.TaskConfig) {
	t.Helper()
	w := realWorld(t)
	p := w.newPlugin()
	t.Cleanup(p.Shutdown)
	harness := testutils.NewDriverHarness(t, p)
	must.NoError(t, harness.SetConfig(w.agentConfig()))
	task, _ := w.script(`sleep 300`, ``)
	task.StdoutPath = os.DevNull
	t.Cleanup(harness.MkAllocDir(task, false)) // ends the harness as well
	return harness, task
}

// A port that an earlier start of the task holds is free for the next one.
func TestServicePortOfAnEarlierStart(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	d := w.boot()
	port := freePort(t)
	first, _ := w.script(`sleep 300`, `ports = ["http"]`)
	first.Resources.Ports = &structs.AllocatedPorts{{Label: "http", Value: port, To: 80, HostIP: "127.0.0.1"}}
	d.run(t, first)
	d.kill()

	d = w.boot() // and Nomad does not recover the task
	second, out := w.script(`echo started`, `ports = ["http"]`)
	second.AllocID, second.AllocDir, second.Resources.Ports = first.AllocID, first.AllocDir, first.Resources.Ports
	d.run(t, second)
	must.True(t, d.ended(t, second).Successful())
	eventually(t, func() bool { return out.Got() == "started\n" })
	noContainer(t, first)
}
