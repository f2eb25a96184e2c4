// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"errors"
	"net"
	"os"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/storetest"
	"nomad-gpu-mem/internal/nvml"
	"nomad-gpu-mem/internal/tableconfig"
	"nomad-gpu-mem/internal/version"
)

func TestStatesReachTheTable(t *testing.T) {
	t.Parallel()
	h, reader := withCanned(t, full())
	h.fingerprint()
	host, err := os.Hostname()
	must.NoError(t, err)

	s := h.tableUntil(func(s *allocator.Snapshot) bool { return len(s.GPUs) == 1 && len(s.Nodes) == 1 })
	node := allocator.NodeName(host)
	must.Eq(t, node, s.Nodes[0].Name)
	must.Eq(t, version.Version, s.Nodes[0].Version)
	must.Eq(t, "550", s.Nodes[0].Driver)
	must.Eq(t, nodeAddress(), s.Nodes[0].Address)
	must.Eq(t, []allocator.GPUID{"GPU-1"}, s.Nodes[0].GPUs)
	state := s.GPUs[0].State
	must.Eq(t, "GPU-1", s.GPUs[0].ID)
	must.Eq(t, node, state.Node)
	must.Eq(t, 24576, state.MemoryMiB)
	must.Eq(t, 300, state.ReservedMiB)
	must.Eq(t, 1024, state.UnitMiB)
	must.Eq(t, 23, state.Units)
	must.Eq(t, "", state.Health)

	reader.set(nil, failing("GPU-1"))
	s = h.tableUntil(func(s *allocator.Snapshot) bool { return s.GPUs[0].State.Health == "GPU is lost" })
	must.Eq(t, "0-22", s.GPUs[0].State.Unhealthy.String())
	reader.set(nil, full())
	h.tableUntil(func(s *allocator.Snapshot) bool { return s.GPUs[0].State.Health == "" })
}

func TestOutageOfTheTableDelaysNothing(t *testing.T) {
	t.Parallel()
	h, reader := withCanned(t, full())
	h.store.Fail(allocator.ErrUnavailable)
	s := h.fingerprint()
	s.until(groups(1))
	reader.set(nil, full(), gpuOf("GPU-2", 8192, 0))
	s.until(groups(2))
	_, err := h.nomad.Reserve([]string{"GPU-2::0000"})
	must.NoError(t, err)

	h.store.Fail(nil)
	h.tableUntil(func(s *allocator.Snapshot) bool { return len(s.GPUs) == 2 })
}

func TestGPUOfAnotherNodeDoesNotKeepTheOthersBack(t *testing.T) {
	t.Parallel()
	h, reader := withCanned(t, gpuOf("GPU-1", 8192, 0), gpuOf("GPU-2", 8192, 0))
	table := allocator.NewTable(h.store)
	must.NoError(t, table.PutGPU(h.ctx, "GPU-1", allocator.GPUState{Node: "another", Units: 8, UnitMiB: 1024}))
	must.NoError(t, table.PutNode(h.ctx, allocator.NodeState{Name: "another", GPUs: []allocator.GPUID{"GPU-1"}}))
	h.fingerprint()
	s := h.tableUntil(func(s *allocator.Snapshot) bool { return len(s.GPUs) == 2 && len(s.Nodes) == 2 })
	for _, g := range s.GPUs {
		must.Eq(t, g.ID == "GPU-1", g.State.Node == "another")
	}

	// Their changes are written at once, and the GPU is adopted when the other node no
	// longer finds it.
	reader.set(nil, gpuOf("GPU-1", 8192, 0), gpuOf("GPU-2", 4096, 0))
	h.tableUntil(func(s *allocator.Snapshot) bool { return stateOf(s, "GPU-2").Units == 4 })
	must.NoError(t, table.PutNode(h.ctx, allocator.NodeState{Name: "another", GPUs: []allocator.GPUID{}}))
	h.tableUntil(func(s *allocator.Snapshot) bool { return stateOf(s, "GPU-1").Node != "another" })
}

func TestAddressIsOneOfTheNodes(t *testing.T) {
	t.Parallel()
	address := nodeAddress()
	if address == "" {
		return // a machine without a network
	}
	own, err := net.InterfaceAddrs()
	must.NoError(t, err)
	must.SliceContainsFunc(t, own, address, func(a net.Addr, address string) bool {
		ip, _, err := net.ParseCIDR(a.String())
		return err == nil && ip.String() == address
	})
	must.Eq(t, address, nodeAddress(), must.Sprint("it is the same each time"))
}

func TestWhatIsWorthWriting(t *testing.T) {
	t.Parallel()
	g := full()
	state := gpuState(history(t, Config{}, []nvml.GPU{g}).offered[0], "node")
	for name, tc := range map[string]struct {
		change func(*allocator.GPUState)
		worth  bool
	}{
		"nothing":             {func(*allocator.GPUState) {}, false},
		"a little memory use": {func(s *allocator.GPUState) { s.UsedMiB += 1023 }, false},
		"a unit's use":        {func(s *allocator.GPUState) { s.UsedMiB += 1024 }, true},
		"health":              {func(s *allocator.GPUState) { s.Health = "lost" }, true},
		"index":               {func(s *allocator.GPUState) { s.Index++ }, true},
	} {
		now := state
		tc.change(&now)
		must.Eq(t, tc.worth, worthWriting(state, now), must.Sprint(name))
	}
}

// NVML cannot be read after a restart of the agent: nothing is offered, and the node's
// entry says why.
func TestNodeThatCannotReadItsGPUsSaysWhy(t *testing.T) {
	t.Parallel()
	h, reader := withCanned(t)
	reader.set(errors.New("Driver/library version mismatch"))
	h.fingerprint()
	h.tableUntil(func(s *allocator.Snapshot) bool {
		return len(s.Nodes) == 1 && contains(s.Nodes[0].Fault, "version mismatch")
	})
	reader.set(nil, gpuOf("GPU-1", 8192, 0))
	h.tableUntil(func(s *allocator.Snapshot) bool { return s.Nodes[0].Fault == "" && len(s.GPUs) == 1 })
}

// A second machine with this host name does not delay this one's states.
func TestSharedHostName(t *testing.T) {
	t.Parallel()
	table := allocator.NewTable(storetest.NewMemory())
	open := func(tableconfig.Config) (Table, error) { return table, nil }
	p := newPublisher(hclog.NewNullLogger(), nil, &lazyTable{open: open})
	contested, err := p.publish(t.Context(), inventory{driver: "550"})
	must.NoError(t, errors.Join(contested, err))

	other := p.node
	other.Boot, other.GPUs = "another", []allocator.GPUID{"GPU-9"}
	must.ErrorIs(t, table.PutNode(t.Context(), other), allocator.ErrSharedName)
	contested, err = p.publish(t.Context(), inventory{driver: "560"})
	must.NoError(t, err)
	must.ErrorIs(t, contested, allocator.ErrSharedName)
	node, err := table.Node(t.Context(), p.node.Name)
	must.NoError(t, err)
	must.Eq(t, "560", node.Driver)
	must.False(t, node.Lacks("GPU-9"))
}
