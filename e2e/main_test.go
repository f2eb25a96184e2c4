// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"testing"

	"nomad-gpu-mem/internal/nvml/fakenvml"
)

// The two simulated GPUs of the cluster that all tests share.
const (
	bigGPU   = "GPU-11111111-1111-1111-1111-111111111111" // 24 GiB
	smallGPU = "GPU-22222222-2222-2222-2222-222222222222" // 11 GiB
)

// shared is the cluster of all tests. Each test leaves it without a claim.
var shared *cluster

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	c, err := startCluster(twoGPUs())
	if c != nil {
		defer func() {
			if err := c.down(); err != nil {
				fmt.Fprintln(os.Stderr, "stopping the cluster:", err)
				code = 1
			}
		}()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the cluster:", err)
		return 1
	}
	shared = c
	return m.Run()
}

// twoGPUs is a node with two GPUs. The NVIDIA driver reserves 600 and 300 MiB.
func twoGPUs() fakenvml.State {
	big := fakenvml.NewGPU(0x10, "NVIDIA A10", 24*1024)
	big.UUID, big.ReservedMiB = bigGPU, 600
	small := fakenvml.NewGPU(0x20, "NVIDIA GeForce RTX 2080 Ti", 11*1024)
	small.UUID, small.ReservedMiB = smallGPU, 300
	return fakenvml.State{GPUs: []fakenvml.GPU{big, small}}
}
