// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"
)

// A Connect job of this driver also names it for the proxy, with the configuration that
// Nomad sets only for docker. Only one driver can make the group's network.
func TestConnectSidecar(t *testing.T) {
	alloc := shared.start(t, connectJob("mesh", &api.SidecarTask{Driver: "gpu-docker", Config: map[string]any{
		"image": "${meta.connect.sidecar_image}",
		"args":  []string{"-c", "${NOMAD_SECRETS_DIR}/envoy_bootstrap.json", "-l", "${meta.connect.log_level}", "--disable-hot-restart"},
	}}))
	must.MapContainsKey(t, alloc.TaskStates, "connect-proxy-mesh")
	containers := shared.containers(t, alloc.ID)
	must.Len(t, 3, containers) // the task, the proxy, and the network
	namespaces := map[string]bool{}
	for _, id := range containers {
		namespaces[networkOf(t, shared.container(t, id).Pid)] = true
	}
	must.MapLen(t, 1, namespaces)
	shared.waitProxy(t, "mesh")
}

// Otherwise Nomad refuses the group before it starts a task.
func TestConnectSidecarOfAnotherDriver(t *testing.T) {
	shared.submit(t, connectJob("mesh-mixed", nil))
	eventually(t, startTime, "the group is refused", func() error {
		alloc, err := shared.latest("mesh-mixed")
		if err == nil && alloc.ClientStatus != "failed" {
			err = errNotYet(alloc.ClientStatus)
		}
		return err
	})
	alloc, err := shared.latest("mesh-mixed")
	must.NoError(t, err)
	for name, state := range alloc.TaskStates {
		must.True(t, state.StartedAt.IsZero(), must.Sprint(name))
	}
	must.SliceEmpty(t, shared.containers(t, alloc.ID))
}

// connectJob is a service in Consul's mesh. sidecar is the job's block for the proxy.
func connectJob(name string, sidecar *api.SidecarTask, options ...option) *api.Job {
	return gpuJob(name, 0, append(options, func(job *api.Job) {
		group := job.TaskGroups[0]
		group.Networks = []*api.NetworkResource{{Mode: "bridge"}}
		group.Services = []*api.Service{{
			Name: name, PortLabel: "9001",
			Connect: &api.ConsulConnect{SidecarService: &api.ConsulSidecarService{}, SidecarTask: sidecar},
		}}
	})...)
}

// consul reads a path of Consul's HTTP interface.
func (c *cluster) consul(path string, into any) error {
	response, err := http.Get(c.vars["CONSUL_HTTP_ADDR"] + path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(into)
}
