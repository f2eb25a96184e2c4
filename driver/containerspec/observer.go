// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"fmt"
	"strings"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/config"
)

// asksToObserve reports whether the task asks for all GPUs: by NVIDIA's runtime, and
// without a booking, which would decide what it sees.
func (in *Input) asksToObserve() bool {
	return !in.HasGPU() && in.Job.Runtime == in.Settings.NvidiaRuntime
}

// checkObserver fails if a task that asks for all GPUs may not see them.
func (in *Input) checkObserver() error {
	observer := in.Settings.GPUObserver
	switch {
	case !in.asksToObserve():
		return nil
	case !observer.Lists(in.Task):
		return fmt.Errorf("config.runtime = %q is for tasks with a device block %q: add one, or remove the runtime; "+
			"a job that only monitors GPUs needs an entry in the client's gpu_observer.jobs", in.Job.Runtime, allocator.Device)
	case !in.Settings.AllowsNvidiaRuntime():
		return fmt.Errorf("requested runtime %q is not allowed; the client's allow_runtimes has %q", in.Job.Runtime, in.Settings.AllowRuntimes)
	case in.Job.Privileged && !in.Settings.AllowPrivilegedGPU:
		return fmt.Errorf("config.privileged in a job of gpu_observer: a privileged container can use the GPUs that it should only see; " +
			"remove it, or have the operator set allow_privileged_gpu")
	}
	return observer.CheckImage(in.Job)
}

// Observes reports whether the container sees all GPUs and holds none.
func (in *Input) Observes() bool { return in.asksToObserve() && in.checkObserver() == nil }

// pinObserver lets a container see all GPUs, with the capabilities that the operator allows.
func pinObserver(g config.GPUObserver) map[string]string {
	return map[string]string{VisibleDevices: "all", driverCapabilities: strings.Join(g.Capabilities, ",")}
}
