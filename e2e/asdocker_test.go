// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

// Under the name docker the driver replaces Nomad's own: tasks of Nomad's driver keep
// running, and jobs stay as they are.
func TestServedAsDocker(t *testing.T) {
	t.Cleanup(func() { shared.serveAs(t, "gpu-docker") }) // after the jobs are gone
	slice := shared.start(t, gpuJob("own-slice", 3, onGPU(smallGPU), onDocker))
	group := shared.start(t, bridgeJob("own-group"))
	held := map[string][]string{slice.ID: shared.containers(t, slice.ID), group.ID: shared.containers(t, group.ID)}
	must.Len(t, 3, held[group.ID]) // two tasks, and the network
	must.SliceEmpty(t, shared.claims(t))

	shared.serveAs(t, "docker")
	t.Run("Nomad loads it", testLoadedAsDocker)
	t.Run("a task keeps running", func(t *testing.T) { testGoesOn(t, slice, held[slice.ID]) })
	t.Run("a group keeps running", func(t *testing.T) { testGroupGoesOn(t, group, held[group.ID]) })
	t.Run("an unchanged job", testUnchangedJob)
	t.Run("an unchanged Connect job", testConnectUnchanged)
	t.Run("a task is handed back", testHandedBack)
}

// serveAs restarts the agent with the driver under that name.
func (c *cluster) serveAs(t *testing.T, driver string) {
	t.Helper()
	setting := "GPU_MEM_DRIVER_NAME=" + driver
	if c.env[len(c.env)-1] == setting {
		return
	}
	c.env = append(c.env, setting)
	c.nomadScript(t, "stop")
	c.nomadScript(t, "start")
	eventually(t, startTime, "the node has driver "+driver, func() error {
		attributes := c.node(t).Attributes
		if attributes["driver."+driver+".nvidia_runtime"] == "" { // which Nomad's own does not have
			return fmt.Errorf("%v", attributes)
		}
		return nil
	})
}

// node returns Nomad's only node.
func (c *cluster) node(t *testing.T) *api.Node {
	t.Helper()
	nodes, _, err := c.nomad.Nodes().List(nil)
	must.NoError(t, err)
	must.Len(t, 1, nodes)
	node, _, err := c.nomad.Nodes().Info(nodes[0].ID, nil)
	must.NoError(t, err)
	return node
}

// onDocker makes the driver docker run the job.
func onDocker(job *api.Job) {
	for _, group := range job.TaskGroups {
		for _, task := range group.Tasks {
			task.Driver = "docker"
		}
	}
}

// bridgeJob is a group of two tasks of the driver docker in one network.
func bridgeJob(name string) *api.Job {
	return gpuJob(name, 0, func(job *api.Job) {
		group := job.TaskGroups[0]
		second := *group.Tasks[0]
		second.Name = name + "-proxy"
		group.AddTask(&second)
		group.Networks = []*api.NetworkResource{{Mode: "bridge"}}
	}, onDocker)
}

func testLoadedAsDocker(t *testing.T) {
	node := shared.node(t)
	must.True(t, node.Drivers["docker"].Healthy)
	must.Eq(t, "Healthy", node.Drivers["docker"].HealthDescription)
	must.NotEq(t, "", node.Attributes["driver.docker.version"])
	must.MapNotContainsKey(t, node.Drivers, "gpu-docker")
	must.SliceNotEmpty(t, shared.processes(t, driverPlugin))
	must.MapContainsKey(t, node.Attributes, "driver.docker.nvidia_runtime", must.Sprint("Nomad's own driver has no such attribute"))
}

// The task's container and its log continue, and its slice is claimed.
func testGoesOn(t *testing.T, alloc *api.Allocation, containers []string) {
	held := shared.claimsOf(t, "own-slice", allocator.Running)[0]
	must.Eq(t, containers, []string{held.Container})
	must.Len(t, 3, held.Units)
	must.Eq(t, alloc.ID, shared.waitRunning(t, "own-slice").ID)
	ticks := shared.waitTicks(t, alloc, "own-slice", 10)
	slices.Sort(ticks) // at the moment of the change a line may come twice
	ticks = slices.Compact(ticks)
	must.Eq(t, sequence(len(ticks)), ticks)

	shared.remove(t, "own-slice")
	must.SliceEmpty(t, shared.containers(t, alloc.ID))
}

// A restarted task joins the network that the other driver made, and the network ends
// with the group.
func testGroupGoesOn(t *testing.T, alloc *api.Allocation, containers []string) {
	must.Eq(t, containers, shared.containers(t, alloc.ID))
	must.NoError(t, shared.nomad.Allocations().Restart(alloc, "own-group-proxy", nil))
	eventually(t, startTime, "the task is restarted", func() error {
		now, err := shared.latest("own-group")
		if err == nil && (now.TaskStates["own-group-proxy"].Restarts != 1 || now.TaskStates["own-group-proxy"].State != "running") {
			err = fmt.Errorf("%s", eventTexts(now.TaskStates["own-group-proxy"]))
		}
		return err
	})
	now := shared.containers(t, alloc.ID)
	must.Len(t, 3, now)
	namespaces := map[string]bool{}
	for _, id := range now {
		namespaces[networkOf(t, shared.container(t, id).Pid)] = true
	}
	must.MapLen(t, 1, namespaces)

	shared.remove(t, "own-group")
	eventually(t, startTime, "the group's network is gone", func() error {
		if left := shared.containers(t, alloc.ID); len(left) > 0 {
			return fmt.Errorf("%d containers", len(left))
		}
		return nil
	})
}

func testUnchangedJob(t *testing.T) {
	alloc := shared.start(t, gpuJob("unchanged", 4, onGPU(smallGPU), onDocker))
	held := shared.claimsOf(t, "unchanged", allocator.Running)[0]
	must.Eq(t, []string{held.Container}, shared.containers(t, alloc.ID))
	must.Eq(t, []string{"nvidia1"}, shared.gpusInside(t, held.Container))
	must.Eq(t, "4", shared.envInside(t, held.Container)["GPU_MEM_UNITS"])
}

// Nomad adds the proxy itself, with the driver docker.
func testConnectUnchanged(t *testing.T) {
	alloc := shared.start(t, connectJob("unchanged-mesh", nil, onDocker))
	must.MapLen(t, 2, alloc.TaskStates)
	must.MapContainsKey(t, alloc.TaskStates, "connect-proxy-unchanged-mesh")
	must.Len(t, 3, shared.containers(t, alloc.ID))
	for _, id := range shared.containers(t, alloc.ID) {
		must.False(t, strings.HasPrefix(shared.container(t, id).Name, "nomad_init_"))
	}
	shared.waitProxy(t, "unchanged-mesh")
}

// Nomad's own driver can read the handles of this one, so an operator can switch back.
func testHandedBack(t *testing.T) {
	alloc := shared.start(t, gpuJob("handed-back", 0, onDocker))
	containers := shared.containers(t, alloc.ID)
	shared.serveAs(t, "gpu-docker")
	must.Eq(t, alloc.ID, shared.waitRunning(t, "handed-back").ID)
	must.Eq(t, containers, shared.containers(t, alloc.ID))
	shared.waitTicks(t, alloc, "handed-back", 10)
	shared.remove(t, "handed-back")
	eventually(t, startTime, "its container is gone", func() error {
		if left := shared.containers(t, alloc.ID); len(left) > 0 {
			return fmt.Errorf("%d containers", len(left))
		}
		return nil
	})
}

// waitProxy waits until Consul knows the service's proxy.
func (c *cluster) waitProxy(t *testing.T, service string) {
	t.Helper()
	eventually(t, startTime, "Consul has the proxy of "+service, func() error {
		var found []struct{ ServiceKind string }
		if err := c.consul("/v1/catalog/connect/"+service, &found); err != nil {
			return err
		}
		if len(found) == 0 {
			return fmt.Errorf("it has none")
		}
		return nil
	})
}
