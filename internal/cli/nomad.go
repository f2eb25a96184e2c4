// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/spf13/pflag"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/doctor"
)

const nomadHelp = `Nomad's address is --nomad-address or NOMAD_ADDR; in a Nomad task that has a NOMAD_TOKEN
it defaults to NOMAD_UNIX_ADDR. NOMAD_TOKEN and the other variables of Nomad's clients
apply too. The token needs read-job in all namespaces and node:read.`

// nomadFlags are the options that locate Nomad.
type nomadFlags struct {
	address string
	getenv  func(string) string
}

func (f *nomadFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.address, "nomad-address", f.fromEnvironment(), "Nomad's `URL`, or unix:///path of a socket")
}

// fromEnvironment returns the address from the environment. Nomad gives tasks a socket to
// its API, which rejects requests without a token.
func (f *nomadFlags) fromEnvironment() string {
	socket := f.getenv("NOMAD_UNIX_ADDR")
	switch {
	case f.getenv("NOMAD_ADDR") != "":
		return f.getenv("NOMAD_ADDR")
	case socket == "" || f.getenv("NOMAD_TOKEN") == "":
		return ""
	case strings.HasPrefix(socket, "/"):
		return "unix://" + socket
	}
	return socket
}

// open returns a client, or nil if no address is given.
func (f *nomadFlags) open() (*api.Client, error) {
	if f.address == "" {
		return nil, nil
	}
	if at, err := url.Parse(f.address); err != nil || at.Scheme == "" || at.Host+at.Path == "" {
		return nil, usageError{fmt.Errorf("--nomad-address: invalid URL %q, want for example http://127.0.0.1:4646 or unix:///secrets/api.sock", f.address)}
	}
	config := api.DefaultConfig()
	config.Address = f.address
	client, err := api.NewClient(config)
	if err != nil {
		return nil, usageError{fmt.Errorf("--nomad-address: %w", err)}
	}
	return client, nil
}

// nomadEvidence reads all nodes and allocations from Nomad, with their devices.
func nomadEvidence(ctx context.Context, client *api.Client) (*doctor.Nomad, error) {
	all := (&api.QueryOptions{Namespace: api.AllNamespacesNamespace, Params: map[string]string{"resources": "true"}}).WithContext(ctx)
	stubs, _, err := client.Allocations().List(all)
	if err != nil {
		return nil, fmt.Errorf("cannot list the allocations of Nomad at %s: %w", client.Address(), err)
	}
	nodes, _, err := client.Nodes().List((&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("cannot list the nodes of Nomad at %s: %w", client.Address(), err)
	}
	evidence := &doctor.Nomad{Allocs: make(map[string]doctor.Alloc, len(stubs)), Nodes: make(map[allocator.NodeID]bool, len(nodes))}
	for _, node := range nodes {
		evidence.Nodes[allocator.NodeID(node.ID)] = true
	}
	for _, stub := range stubs {
		evidence.Allocs[stub.ID] = allocOf(stub)
	}
	return evidence, nil
}

func allocOf(stub *api.AllocationListStub) doctor.Alloc {
	alloc := doctor.Alloc{
		Job: stub.JobID, NodeName: allocator.NodeName(stub.NodeName),
		Ended: stub.ClientStatus == api.AllocClientStatusComplete || stub.ClientStatus == api.AllocClientStatusFailed,
		Lost:  stub.ClientStatus == api.AllocClientStatusLost, // an "unknown" one may reconnect
		Tasks: map[string]doctor.Task{},
	}
	for name, state := range stub.TaskStates {
		task := doctor.Task{Running: state.State == "running", Ended: state.State == "dead", Since: state.StartedAt}
		if task.Ended {
			task.Since = state.FinishedAt
		}
		alloc.Tasks[name] = task
	}
	if stub.AllocatedResources == nil {
		return alloc
	}
	for name, resources := range stub.AllocatedResources.Tasks {
		task := alloc.Tasks[name]
		task.Units = bookedUnits(resources.Devices)
		if task.Since.IsZero() {
			task.Since = time.Unix(0, stub.CreateTime)
		}
		alloc.Tasks[name] = task
	}
	return alloc
}

// bookedUnits returns the GPU memory units among the devices of an allocation.
func bookedUnits(devices []*api.AllocatedDeviceResource) map[allocator.GPUID]allocator.UnitSet {
	units := map[allocator.GPUID]allocator.UnitSet{}
	for _, device := range devices {
		if device.Vendor != allocator.DeviceVendor || device.Type != allocator.DeviceType {
			continue
		}
		for _, id := range device.DeviceIDs {
			if gpu, unit, err := allocator.ParseUnitID(id); err == nil {
				units[gpu] = units[gpu].Union(allocator.NewUnitSet(unit))
			}
		}
	}
	return units
}
