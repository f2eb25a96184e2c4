// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"testing"

	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/driver/configtest"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/label"
)

// serviceOf is the plugin's service with a view of processes in which a pause container
// has the given interface and, if shared, another process in its namespace.
func serviceOf(t *testing.T, w *world, device string, shared bool) (*driver, *services) {
	t.Helper()
	w.config += "\ngc {\n dangling_containers {\n enabled = false\n }\n}" // the tests look themselves
	d := w.boot()
	s, err := d.plugin.serving()
	must.NoError(t, err)
	s.sandboxes.proc = fakeProc(t, device, shared)
	return d, s
}

// The keys are those that Nomad reads.
func TestCreateNetwork(t *testing.T) {
	t.Parallel()
	d, _ := serviceOf(t, newWorld(t), "eth0", false)
	manager := d.plugin // Nomad 1.6 hands neither a host name nor a missing spec over gRPC

	plain, created, err := manager.CreateNetwork(allocID, &drivers.NetworkCreateRequest{})
	must.NoError(t, err)
	must.True(t, created)
	must.Eq(t, drivers.NetIsolationModeGroup, plain.Mode)
	must.Eq(t, "/run/netns/1", plain.Path)
	must.Eq(t, map[string]string{"docker_sandbox_container_id": "s1"}, plain.Labels)

	again, created, err := manager.CreateNetwork(allocID, &drivers.NetworkCreateRequest{Hostname: "web"})
	must.NoError(t, err)
	must.False(t, created)
	must.Eq(t, map[string]string{"docker_sandbox_container_id": "s1", "docker_sandbox_hostname": "web"}, again.Labels)

	must.NoError(t, manager.DestroyNetwork(allocID, nil), must.Sprint("as after a restart: Nomad has no spec"))
	must.NoError(t, manager.DestroyNetwork(allocID, again), must.Sprint("there is none any more"))
	_, created, err = manager.CreateNetwork(allocID, &drivers.NetworkCreateRequest{})
	must.NoError(t, err)
	must.True(t, created)
}

// Nomad furnishes only a network that the driver reports as created. One that runs bare
// would stay so, and the group would look healthy and be deaf.
func TestCreateNetworkOverOneThatIsBare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, device string
		shared       bool
		created      bool
	}{
		{"bare", "lo", false, true},
		{"furnished", "eth0", false, false},
		{"tasks are in it", "lo", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d, _ := serviceOf(t, w, c.device, c.shared)
			first, _, err := d.plugin.CreateNetwork(allocID, nil)
			must.NoError(t, err)
			second, created, err := d.plugin.CreateNetwork(allocID, nil)
			must.NoError(t, err)
			must.Eq(t, c.created, created)
			must.Eq(t, c.created, first.Path != second.Path)
			must.Eq(t, 1, w.engine.count())
		})
	}
}

// A daemon that restarts ends the pause container, and an operator can restart it. Its
// interfaces do not come back; a task in it would have no network.
func TestStartInAGroupNetworkThatIsGone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		happen func(c *fakeContainer)
		want   string
	}{
		{"ended", func(c *fakeContainer) { c.Running = false }, "s1 has ended"},
		{"restarted", func(c *fakeContainer) { c.SandboxKey = "/run/netns/other" }, "s1 was restarted"},
		{"removed", func(c *fakeContainer) { c.ID = "other" }, "s1 was removed"},
		{"well", func(*fakeContainer) {}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d, _ := serviceOf(t, w, "eth0", false)
			spec, _, err := d.plugin.CreateNetwork(allocID, nil)
			must.NoError(t, err)
			w.engine.change(func() { c.happen(w.engine.containers["s1"]) })
			task := w.task(``, slice(gpuA, 1))
			task.NetworkIsolation = spec
			_, _, err = d.plugin.StartTask(task)
			if c.want == "" {
				must.NoError(t, err)
				must.SliceContainsFunc(t, w.engine.running(), "container:s1", func(c *fakeContainer, mode string) bool {
					return c.spec.Host != nil && string(c.spec.Host.NetworkMode) == mode
				})
				return
			}
			must.ErrorContains(t, err, c.want)
			must.ErrorContains(t, err, "nomad alloc stop "+allocID)
			must.False(t, structs.IsRecoverable(err), must.Sprint("the allocation must be replaced"))
			must.SliceEmpty(t, w.claims())
		})
	}
}

// An image brings labels of its own: a task's container cannot pass for the pause
// container of a group.
func TestForgedSandboxStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	w.engine.change(func() {
		w.engine.containers["forged"] = &fakeContainer{Container: docker.Container{
			ID: "forged", Name: "task_1", Running: true, Labels: map[string]string{label.Sandbox: allocID},
		}}
	})
	must.NoError(t, d.plugin.DestroyNetwork(allocID, nil))
	must.Eq(t, 1, w.engine.count())
}

func TestDriverNetwork(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, hcl string
		found     docker.Container
		want      drivers.DriverNetwork
	}{
		{"default bridge", ``, docker.Container{NetworkName: "bridge", IP: "172.17.0.2"}, drivers.DriverNetwork{IP: "172.17.0.2"}},
		{"a network of one's own", ``, docker.Container{NetworkName: "backend", IP: "10.1.0.2"},
			drivers.DriverNetwork{IP: "10.1.0.2", AutoAdvertise: true}},
		{"no network", ``, docker.Container{}, drivers.DriverNetwork{}},
		{"port_map", `port_map { http = 80 }`, docker.Container{NetworkName: "bridge", IP: "172.17.0.2"},
			drivers.DriverNetwork{IP: "172.17.0.2", PortMap: map[string]int{"http": 80}}},
		{"IPv6", `advertise_ipv6_address = true`, docker.Container{NetworkName: "bridge", IP: "172.17.0.2", IPv6: "2001:db8::2"},
			drivers.DriverNetwork{IP: "2001:db8::2", AutoAdvertise: true}},
		{"IPv6 that the container has not", `advertise_ipv6_address = true`, docker.Container{NetworkName: "bridge", IP: "172.17.0.2"},
			drivers.DriverNetwork{IP: "172.17.0.2"}},
		{"IPv6 of the link", `advertise_ipv6_address = true`, docker.Container{NetworkName: "bridge", IP: "172.17.0.2", IPv6: "fe80::2"},
			drivers.DriverNetwork{IP: "172.17.0.2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := driverNetwork(configtest.Task(t, c.hcl), c.found)
			must.Eq(t, c.want.IP, got.IP)
			must.Eq(t, c.want.AutoAdvertise, got.AutoAdvertise)
			must.MapEq(t, c.want.PortMap, got.PortMap)
		})
	}
}
