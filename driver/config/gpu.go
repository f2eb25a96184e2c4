// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package config

import "slices"

// Injection is the way by which GPUs reach a container.
type Injection string

const (
	// ByRuntime: the NVIDIA runtime reads NVIDIA_VISIBLE_DEVICES and gives the container those GPUs.
	ByRuntime Injection = "runtime"
	// ByCDI: Docker itself gives the container what a specification of the Container Device Interface says of those GPUs.
	ByCDI Injection = "cdi"
	// ByEither, as a setting: by CDI where Docker lists the GPU, otherwise by the runtime.
	ByEither Injection = "auto"
	// ByNone, as a fingerprint: neither works on this node.
	ByNone Injection = "none"
)

// AllowsNvidiaRuntime reports whether tasks may have GPUs by the NVIDIA runtime. In
// allow_runtimes it stands under the name that it has by default, or under its own.
func (s Settings) AllowsNvidiaRuntime() bool {
	return slices.Contains(s.AllowRuntimes, defaultNvidiaRuntime) || slices.Contains(s.AllowRuntimes, s.NvidiaRuntime)
}

const defaultNvidiaRuntime = "nvidia"
