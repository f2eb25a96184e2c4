// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package injection decides how GPUs reach a container: by the NVIDIA runtime or by CDI, according to the operator's
// gpu_injection and to what the Docker engine has. toolkit.go knows which versions of NVIDIA's programs are unsafe.
package injection

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/config"
	"nomad-gpu-mem/driver/docker"
)

// Choose chooses the way for a task with these GPUs, or, without any, for the node. The reasons say why there is none.
func Choose(s config.Settings, info docker.Info, gpus []allocator.GPUID) (way config.Injection, reasons []string) {
	cdi, runtime := cdiFaults(info, gpus), runtimeFaults(s, info)
	switch setting := config.Injection(s.GPUInjection); {
	case setting == config.ByCDI && len(cdi) > 0:
		return config.ByNone, cdi
	case setting == config.ByCDI, setting != config.ByRuntime && len(cdi) == 0 && info.CDI.Lists:
		return config.ByCDI, nil
	case len(runtime) == 0:
		return config.ByRuntime, nil
	case setting != config.ByRuntime && info.CDI.Enabled:
		return config.ByNone, append(runtime, cdi...)
	}
	return config.ByNone, runtime
}

// runtimeFaults says why the NVIDIA runtime cannot give GPUs.
func runtimeFaults(s config.Settings, info docker.Info) (faults []string) {
	if !slices.Contains(info.Runtimes, s.NvidiaRuntime) {
		faults = append(faults, fmt.Sprintf("docker has no runtime %q (nvidia_runtime)", s.NvidiaRuntime))
	}
	if !s.AllowsNvidiaRuntime() {
		faults = append(faults, fmt.Sprintf("allow_runtimes has no %q (nvidia_runtime)", s.NvidiaRuntime))
	}
	return faults
}

// cdiFaults says why Docker cannot give these GPUs by CDI; without any, why it can give none. An engine that has CDI and does
// not list its devices is taken at its word.
func cdiFaults(info docker.Info, gpus []allocator.GPUID) []string {
	switch {
	case !info.CDI.Enabled:
		return []string{fmt.Sprintf(`Docker Engine %s has no CDI, or it is off: use 25 or newer, with "features": {"cdi": true} in `+
			"daemon.json before 28.2", info.Version)}
	case !info.CDI.Lists:
		return nil
	case len(gpus) == 0 && !slices.ContainsFunc(info.CDI.Devices, namesGPU):
		return []string{"no CDI specification names a GPU by its UUID: " + writeCDI}
	}
	for _, gpu := range gpus {
		if !slices.Contains(info.CDI.Devices, CDIName(gpu)) {
			return []string{fmt.Sprintf("no CDI specification names %s: %s", CDIName(gpu), writeCDI)}
		}
	}
	return nil
}

const writeCDI = "run `nvidia-ctk cdi generate --device-name-strategy=uuid --output=/etc/cdi/nvidia.yaml`, " +
	"or see docker info for errors in the file"

// namesGPU reports whether a CDI device is one GPU or MIG instance, by its UUID.
func namesGPU(device string) bool {
	name, isGPU := strings.CutPrefix(device, cdiKind+"=")
	return isGPU && (strings.HasPrefix(name, "GPU-") || strings.HasPrefix(name, "MIG-"))
}

// ErrNoCDIDevice is returned when no CDI specification names a GPU of the task. One may still be being written, as after a boot.
var ErrNoCDIDevice = errors.New("the task's GPUs cannot be given to a container yet")

// Impossible returns the error of a start if neither way gives the container its GPUs.
func Impossible(s config.Settings, info docker.Info, reasons []string) error {
	switch {
	case config.Injection(s.GPUInjection) == config.ByRuntime, !info.CDI.Enabled && config.Injection(s.GPUInjection) == config.ByEither:
		return NoRuntime(s, info)
	case !info.CDI.Enabled:
		return fmt.Errorf("gpu_injection: %s", strings.Join(reasons, "; "))
	}
	return fmt.Errorf("%w: %s", ErrNoCDIDevice, strings.Join(reasons, "; "))
}

// NoRuntime is the error of a start that needs the NVIDIA runtime where Docker has none.
func NoRuntime(s config.Settings, info docker.Info) error {
	return fmt.Errorf("requested docker runtime %q was not found; docker has %q: install the NVIDIA Container Toolkit, "+
		"run `nvidia-ctk runtime configure --runtime=docker` and restart docker, or set nvidia_runtime to the runtime's name",
		s.NvidiaRuntime, info.Runtimes)
}

// PlainRuntime returns the runtime of containers that get GPUs by CDI: "runc" if the engine's default is the NVIDIA runtime,
// otherwise "" for the default.
func PlainRuntime(s config.Settings, info docker.Info) string {
	program := filepath.Base(info.RuntimePaths[info.DefaultRuntime])
	if info.DefaultRuntime == s.NvidiaRuntime || strings.HasPrefix(program, "nvidia-container-runtime") {
		return "runc"
	}
	return ""
}
