// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os/exec"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/nvml/fakenvml"
)

// setGPUs changes the GPUs of the cluster's machine.
func (c *cluster) setGPUs(t *testing.T, gpus fakenvml.State) {
	t.Helper()
	must.NoError(t, gpus.Write(c.vars["FAKE_NVML_STATE"]))
}

// waitHealthy waits until Nomad may sell exactly this number of units of a GPU.
func (c *cluster) waitHealthy(t *testing.T, gpu string, units int) {
	t.Helper()
	eventually(t, startTime, fmt.Sprintf("%d units of %s are healthy", units, gpu), func() error {
		healthy := 0
		for _, instance := range c.deviceGroups(t, 2)[gpu].Instances {
			if instance.Healthy {
				healthy++
			}
		}
		if healthy != units {
			return fmt.Errorf("%d are", healthy)
		}
		return nil
	})
}

// waitBlocked waits until Nomad has a blocked evaluation of the job.
func (c *cluster) waitBlocked(t *testing.T, job string) {
	t.Helper()
	eventually(t, startTime, "job "+job+" is blocked", func() error {
		evals, _, err := c.nomad.Jobs().Evaluations(job, nil)
		if err != nil {
			return err
		}
		for _, eval := range evals {
			if eval.Status == "blocked" {
				return nil
			}
		}
		return fmt.Errorf("%d evaluations, none is blocked", len(evals))
	})
}

// nodeIndex returns the index of the last change of Nomad's only node.
func (c *cluster) nodeIndex(t *testing.T) uint64 {
	t.Helper()
	nodes, _, err := c.nomad.Nodes().List(nil)
	must.NoError(t, err)
	must.Len(t, 1, nodes)
	return nodes[0].ModifyIndex
}

// outsider starts a process outside Nomad and returns its PID.
func outsider(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	must.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}
