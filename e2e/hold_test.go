// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/consul"
)

// An operator takes a slice beside a task. While they hold it, it is not offered to
// Nomad; then it is offered again.
func TestClaimOutsideNomad(t *testing.T) {
	task := shared.start(t, gpuJob("claim-neighbour", 6, onGPU(bigGPU)))
	out := shared.cli(t, "claim", "--gpu", bigGPU, "--memory", "8GiB", "--",
		"sh", "-c", "echo sees $CUDA_VISIBLE_DEVICES, $GPU_MEM_LIMIT_MIB MiB; "+filepath.Join("..", "bin", "nomad-gpu-mem")+" status --gpu "+bigGPU)
	must.StrContains(t, out, "sees "+bigGPU+", 8192 MiB")
	must.StrContains(t, out, "held")
	must.StrContains(t, out, "held outside Nomad")
	must.Eq(t, task.ID, shared.waitRunning(t, "claim-neighbour").ID)
	shared.waitHealthy(t, bigGPU, 23)
	must.Len(t, 1, shared.claims(t))
}

// `doctor` finds and releases the claim of an ended task, and not that of a running
// one.
func TestDoctorMendsALeak(t *testing.T) {
	runs := shared.start(t, gpuJob("doctor-runs", 2))
	ended := shared.start(t, gpuJob("doctor-ended", 2))
	_, _, err := shared.nomad.Jobs().Deregister("doctor-ended", false, nil)
	must.NoError(t, err)
	eventually(t, startTime, "the claim is released", func() error {
		if claims := shared.claims(t); len(claims) != 1 {
			return fmt.Errorf("%d claims", len(claims))
		}
		return nil
	})
	must.Eq(t, 0, shared.doctor(t))

	shared.leak(t, ended.ID, ended.NodeID)
	eventually(t, startTime, "the doctor finds the leak", func() error { // once Nomad knows of the end
		if code := shared.doctor(t); code != 5 {
			return fmt.Errorf("exit code %d", code)
		}
		return nil
	})
	must.Len(t, 2, shared.claims(t))
	must.Eq(t, 0, shared.doctor(t, "--fix"))
	must.Eq(t, runs.ID, shared.claims(t)[0].Alloc)
	must.Len(t, 1, shared.claims(t))
}

// leak writes a claim of an hour ago for an allocation.
func (c *cluster) leak(t *testing.T, alloc, node string) {
	t.Helper()
	store, err := consul.New(consul.Config{Address: c.vars["CONSUL_HTTP_ADDR"], Prefix: "gpu-mem"})
	must.NoError(t, err)
	defer store.Close()
	table := allocator.NewTable(store, allocator.WithClock(func() time.Time { return time.Now().UTC().Add(-time.Hour) }))
	host, err := os.Hostname()
	must.NoError(t, err)
	owner := allocator.Owner{Namespace: "default", Job: "doctor-ended", Group: "g", Task: "doctor-ended", Alloc: alloc, Node: allocator.NodeID(node), NodeName: allocator.NodeName(host)}
	booking := allocator.Booking{GPU: bigGPU, UnitMiB: 1024, Of: 23, Units: allocator.NewUnitSet(20, 21)}
	must.NoError(t, table.Claim(t.Context(), owner, allocator.Attempt{ID: alloc + "/leaked"}, []allocator.Booking{booking}))
}

// doctor runs the command and returns its exit code.
func (c *cluster) doctor(t *testing.T, args ...string) int {
	t.Helper()
	out, err := c.command(append([]string{"doctor"}, args...)...).CombinedOutput()
	t.Logf("%s", out)
	if exit, failed := errors.AsType[*exec.ExitError](err); failed {
		return exit.ExitCode()
	}
	must.NoError(t, err)
	return 0
}
