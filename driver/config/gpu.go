// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package config

import "slices"

// Injection is the way by which GPUs reach a container.
type Injection string

const (
	// ByRuntime means that the NVIDIA runtime gives the container the GPUs in NVIDIA_VISIBLE_DEVICES.
	ByRuntime Injection = "runtime"
	// ByCDI means that Docker gives the container the devices that the Container Device Interface specifies for the GPUs.
	ByCDI Injection = "cdi"
	// ByEither is a setting: by CDI where Docker lists the GPU, otherwise by the runtime.
	ByEither Injection = "auto"
	// ByNone is a fingerprint: neither works on this node.
	ByNone Injection = "none"
)

// AllowsNvidiaRuntime reports whether tasks may have GPUs by the NVIDIA runtime. In
// allow_runtimes it stands under the name that it has by default, or under its own.
func (s Settings) AllowsNvidiaRuntime() bool {
	return slices.Contains(s.AllowRuntimes, defaultNvidiaRuntime) || slices.Contains(s.AllowRuntimes, s.NvidiaRuntime)
}

const defaultNvidiaRuntime = "nvidia"
