// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package soak

import (
	"math/rand/v2"
	"os/exec"
	"time"

	"nomad-gpu-mem/internal/nvml/fakenvml"
)

// gpuFaults are faults of GPUs. Each failure doubles a GPU's probation, so each GPU may fail
// only a few times.
var gpuFaults = []fault{
	{"GPU lost", 4, changeGPU(func(gpu *fakenvml.GPU) { gpu.Fail = map[string]string{"*": "GPU_IS_LOST"} },
		func(gpu *fakenvml.GPU) { gpu.Fail = nil }), 4 * time.Second},
	{"GPU hangs", 3, changeGPU(func(gpu *fakenvml.GPU) { gpu.Hang = []string{"nvmlDeviceGetMemoryInfo*"} },
		func(gpu *fakenvml.GPU) { gpu.Hang = nil }), 6 * time.Second},
	{"critical Xid", 3, changeGPU(func(gpu *fakenvml.GPU) { gpu.Events = append(gpu.Events, "xid 79") }, nil), 0},
	{"Xid of a program", 2, changeGPU(func(gpu *fakenvml.GPU) { gpu.Events = append(gpu.Events, "xid 31") }, nil), 0},
	{"memory used outside Nomad", 3, useMemory, 6 * time.Second},
}

// mostFailures is the number of failures for each GPU; its probation is then a minute or two.
const mostFailures = 6

// mayFail counts a failure of a GPU, unless the GPU has reached the limit.
func (s *soak) mayFail(gpu int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures[gpu] >= mostFailures {
		return false
	}
	s.failures[gpu]++
	return true
}

func changeGPU(change, back func(*fakenvml.GPU)) strike {
	return func(s *soak, random *rand.Rand) (func() error, error) {
		gpu := random.IntN(len(s.gpus.GPUs))
		if !s.mayFail(gpu) {
			return nil, errNothing
		}
		err := s.setGPUs(func(gpus []fakenvml.GPU) { change(&gpus[gpu]) })
		if err != nil || back == nil {
			return nil, err
		}
		return func() error { return s.setGPUs(func(gpus []fakenvml.GPU) { back(&gpus[gpu]) }) }, nil
	}
}

// useMemory makes a program outside Nomad use half of a GPU.
func useMemory(s *soak, random *rand.Rand) (func() error, error) {
	gpu := random.IntN(len(s.gpus.GPUs))
	program := exec.Command("sleep", "3600")
	if err := program.Start(); err != nil {
		return nil, err
	}
	err := s.setGPUs(func(gpus []fakenvml.GPU) {
		gpus[gpu].Processes = map[int]int{program.Process.Pid: int(gpus[gpu].MemoryMiB / 2)}
	})
	return func() error {
		_ = program.Process.Kill()
		_ = program.Wait()
		return s.setGPUs(func(gpus []fakenvml.GPU) { gpus[gpu].Processes = nil })
	}, err
}
