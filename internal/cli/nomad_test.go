// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

// fakeNomad answers the commands' requests to Nomad.
type fakeNomad struct {
	*httptest.Server
	mu     sync.Mutex
	looks  int
	change func(looks int, n *fakeNomad) // before each look at the nodes

	unhealthy allocator.UnitSet // of the GPU a10
	allocs    []*api.AllocationListStub
}

func startNomad(t *testing.T) *fakeNomad {
	n := &fakeNomad{change: func(int, *fakeNomad) {}}
	n.Server = httptest.NewServer(n)
	t.Cleanup(n.Close)
	return n
}

func (n *fakeNomad) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if withResources := r.URL.Query().Get("resources") == "true"; r.URL.Path == "/v1/nodes" && !withResources {
		_ = json.NewEncoder(w).Encode([]*api.NodeListStub{{ID: nodeID, Name: "gpu-node-1"}})
		return
	} else if !withResources {
		http.Error(w, "without resources", http.StatusBadRequest)
		return
	}
	switch r.URL.Path {
	case "/v1/nodes":
		n.looks++
		n.change(n.looks, n)
		_ = json.NewEncoder(w).Encode([]*api.NodeListStub{{Name: "gpu-node-1", NodeResources: n.resources()}})
	case "/v1/allocations":
		_ = json.NewEncoder(w).Encode(n.allocs)
	default:
		http.NotFound(w, r)
	}
}

func (n *fakeNomad) resources() *api.NodeResources {
	group := &api.NodeDeviceResource{Vendor: "nvidia", Type: "gpu-mem", Name: string(a10)}
	for unit := range 21 {
		group.Instances = append(group.Instances, &api.NodeDevice{ID: allocator.UnitID(a10, unit), Healthy: !n.unhealthy.Contains(unit)})
	}
	return &api.NodeResources{Devices: []*api.NodeDeviceResource{group}}
}

// allocation is one of Nomad's, with a task that holds units of the GPU a10.
func allocation(id, status string, units ...int) *api.AllocationListStub {
	device := &api.AllocatedDeviceResource{Vendor: "nvidia", Type: "gpu-mem", Name: string(a10)}
	for _, unit := range units {
		device.DeviceIDs = append(device.DeviceIDs, allocator.UnitID(a10, unit))
	}
	return &api.AllocationListStub{
		ID: id, JobID: "chat", NodeName: "gpu-node-1", ClientStatus: status,
		TaskStates: map[string]*api.TaskState{"serve": {State: "running", StartedAt: now.Add(-time.Hour)}},
		AllocatedResources: &api.AllocatedResources{Tasks: map[string]*api.AllocatedTaskResources{
			"serve": {Devices: []*api.AllocatedDeviceResource{device}},
		}},
	}
}

func oneGPUTable(t *testing.T) *builder {
	b := &builder{t: t, store: newWorld(), clock: now}
	b.node("gpu-node-1", "550.54.15", "10.0.0.11")
	b.gpu(a10, allocator.GPUState{Node: "gpu-node-1", Model: "NVIDIA A10", MemoryMiB: 23028, UnitMiB: 1024, Units: 21})
	return b
}

// held returns the only claim that no task owns.
func (b *builder) held() (claim allocator.Claim, found bool) {
	snapshot, err := b.table().Snapshot(b.t.Context())
	must.NoError(b.t, err)
	for _, gpu := range snapshot.GPUs {
		for _, claim := range gpu.Claims() {
			if claim.State.OutsideNomad() {
				return claim, true
			}
		}
	}
	return claim, false
}
