// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

// Two jobs run on one GPU at the same time. Each sees only that GPU and holds its own
// slice, and status shows both.
func TestTwoJobsShareOneGPU(t *testing.T) {
	shared.start(t, gpuJob("share-four", 4, onGPU(bigGPU)))
	shared.start(t, gpuJob("share-six", 6, onGPU(bigGPU)))
	four := shared.claimsOf(t, "share-four", allocator.Running)
	six := shared.claimsOf(t, "share-six", allocator.Running)

	must.Len(t, 1, four)
	must.Len(t, 1, six)
	must.Len(t, 4, four[0].Units)
	must.Len(t, 6, six[0].Units)
	must.SliceEmpty(t, four[0].Units.Intersect(six[0].Units))

	for _, held := range []heldSlice{four[0], six[0]} {
		must.Eq(t, allocator.GPUID(bigGPU), held.gpu)
		must.Eq(t, []string{"nvidia0"}, shared.gpusInside(t, held.Container))
		env := shared.envInside(t, held.Container)
		must.Eq(t, bigGPU, env["GPU_MEM_UUIDS"])
		must.Eq(t, fmt.Sprint(len(held.Units)), env["GPU_MEM_UNITS"])
		must.Eq(t, fmt.Sprint(len(held.Units)*1024), env["GPU_MEM_LIMIT_MIB"])
	}

	status := shared.cli(t, "status")
	must.StrContains(t, status, "share-four")
	must.StrContains(t, status, "share-six")
	must.StrContains(t, shared.cli(t, "status", "--json"), four[0].Container)
}

// A job that no GPU can hold waits, and starts by itself once a slice is free.
func TestJobWaitsForFreeUnits(t *testing.T) {
	shared.start(t, gpuJob("wait-holder", 20, onGPU(bigGPU)))
	shared.submit(t, gpuJob("wait-next", 12))
	shared.waitBlocked(t, "wait-next")

	shared.remove(t, "wait-holder")
	shared.waitRunning(t, "wait-next")
	must.Eq(t, allocator.GPUID(bigGPU), shared.claimsOf(t, "wait-next", allocator.Running)[0].gpu)
}

// A task with two asks gets both: two GPUs, or the sum of the units if Nomad
// chose one GPU for both.
func TestTwoAsksOfOneTask(t *testing.T) {
	t.Run("on two GPUs", func(t *testing.T) {
		shared.start(t, gpuJob("asks-two", 3, onGPU(bigGPU), askingToo(5, smallGPU)))
		held := shared.claimsOf(t, "asks-two", allocator.Running)
		must.Len(t, 2, held)
		must.Eq(t, []string{"nvidia0", "nvidia1"}, shared.gpusInside(t, held[0].Container))
		env := shared.envInside(t, held[0].Container)
		must.Eq(t, bigGPU+","+smallGPU, env["GPU_MEM_UUIDS"])
		must.Eq(t, "3,5", env["GPU_MEM_UNITS"])
	})
	t.Run("on one GPU", func(t *testing.T) {
		shared.start(t, gpuJob("asks-one", 3, onGPU(bigGPU), askingToo(5, bigGPU)))
		held := shared.claimsOf(t, "asks-one", allocator.Running)
		must.Len(t, 1, held)
		must.Len(t, 8, held[0].Units)
		must.Eq(t, []string{"nvidia0"}, shared.gpusInside(t, held[0].Container))
		must.Eq(t, "8", shared.envInside(t, held[0].Container)["GPU_MEM_UNITS"])
	})
}

// askingToo adds an ask for units of that GPU.
func askingToo(units uint64, gpu string) option {
	return with(func(task *api.Task) {
		ask := &api.RequestedDevice{Name: device + "/" + gpu, Count: &units}
		task.Resources.Devices = append(task.Resources.Devices, ask)
	})
}

// No setting of a job author gives the container more GPUs.
func TestJobCannotWidenItsPin(t *testing.T) {
	widen := map[string]string{
		"NVIDIA_VISIBLE_DEVICES": "all",
		"GPU_MEM_LIMIT_MIB":      "999999",
		"GPU_MEM_UNITS":          "999",
	}
	template := &api.Template{
		EmbeddedTmpl: ptr("NVIDIA_VISIBLE_DEVICES=all\nGPU_MEM_LIMIT_MIB=999999\n"),
		DestPath:     ptr("local/wide.env"),
		Envvars:      ptr(true),
	}
	for _, test := range []struct {
		name   string
		units  uint64
		change func(*api.Task)
	}{
		{"env", 2, func(task *api.Task) { task.Env = widen }},
		{"template", 2, func(task *api.Task) { task.Templates = []*api.Template{template} }},
		{"env without a slice", 0, func(task *api.Task) { task.Env = widen }},
		{"template without a slice", 0, func(task *api.Task) { task.Templates = []*api.Template{template} }},
	} {
		t.Run(test.name, func(t *testing.T) {
			name := "wide-" + strings.ReplaceAll(test.name, " ", "-")
			printing := with(func(task *api.Task) {
				task.SetConfig("command", "sh")
				task.SetConfig("args", []string{"-c", "env; " + ticker})
			})
			alloc := shared.start(t, gpuJob(name, test.units, printing, with(test.change)))
			container := shared.containers(t, alloc.ID)[0]

			env := shared.envInside(t, container)
			if test.units == 0 {
				must.Eq(t, "void", env["NVIDIA_VISIBLE_DEVICES"])
				must.SliceEmpty(t, shared.gpusInside(t, container))
				return
			}
			held := shared.claimsOf(t, name, allocator.Running)[0]
			must.Eq(t, string(held.gpu), env["GPU_MEM_UUIDS"])
			must.Eq(t, "2048", env["GPU_MEM_LIMIT_MIB"])
			must.Eq(t, "2", env["GPU_MEM_UNITS"])
			must.Eq(t, []string{nodeOf(held.gpu)}, shared.gpusInside(t, container))
			must.StrContains(t, shared.stdout(t, alloc, name), "GPU_MEM_UUIDS="+string(held.gpu))
		})
	}
}

// Containers of Nomad's own docker driver also see only their GPU, by the environment alone.
func TestBuiltInDockerDriver(t *testing.T) {
	builtIn := func(job *api.Job) { job.TaskGroups[0].Tasks[0].Driver = "docker" }
	alloc := shared.start(t, gpuJob("built-in", 4, onGPU(smallGPU), builtIn))

	container := shared.containers(t, alloc.ID)[0]
	must.Eq(t, smallGPU, shared.envInside(t, container)["NVIDIA_VISIBLE_DEVICES"])
	must.Eq(t, []string{"nvidia1"}, shared.gpusInside(t, container))
}
