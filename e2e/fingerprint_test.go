// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"
)

// Nomad's node object has a device group for each GPU, with as many units as
// its memory has and attributes that jobs can compare.
func TestNodeShowsAGroupPerGPU(t *testing.T) {
	groups := shared.deviceGroups(t, 2)

	big, small := groups[bigGPU], groups[smallGPU]
	must.NotNil(t, big)
	must.NotNil(t, small)
	// The NVIDIA driver reserves 600 and 300 MiB: 23.4 and 10.7 GiB can be sold.
	must.Len(t, 23, big.Instances)
	must.Len(t, 10, small.Instances)
	for i, instance := range big.Instances {
		must.Eq(t, fmt.Sprintf("%s::%04d", bigGPU, i), instance.ID)
		must.True(t, instance.Healthy)
	}

	memory := big.Attributes["memory"]
	must.NotNil(t, memory)
	must.Eq(t, "MiB", memory.Unit)
	must.Eq(t, 24*1024, *memory.IntVal)
	must.Eq(t, 23, *big.Attributes["units"].IntVal)
	must.Eq(t, "NVIDIA A10", *big.Attributes["model"].StringVal)
	must.Eq(t, 11*1024, *small.Attributes["memory"].IntVal)
}

// deviceGroups returns the node's groups of our type by name, once there are so
// many.
func (c *cluster) deviceGroups(t *testing.T, want int) map[string]*api.NodeDeviceResource {
	t.Helper()
	groups := map[string]*api.NodeDeviceResource{}
	eventually(t, startTime, fmt.Sprintf("the node has %d GPUs", want), func() error {
		clear(groups)
		nodes, _, err := c.nomad.Nodes().List(nil)
		if err != nil {
			return err
		}
		for _, stub := range nodes {
			node, _, err := c.nomad.Nodes().Info(stub.ID, nil)
			if err != nil {
				return err
			}
			for _, group := range node.NodeResources.Devices {
				if group.Vendor == "nvidia" && group.Type == "gpu-mem" {
					groups[group.Name] = group
				}
			}
		}
		if len(groups) != want {
			return fmt.Errorf("it has %d", len(groups))
		}
		return nil
	})
	return groups
}
