// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package label

import "strings"

// ContainerName returns the name of the container of an allocation's task. Nomad's Docker driver cannot mistake the container for
// one of its own: it joins task and allocation by a dash, and removes containers it does not know with such a name.
func ContainerName(task, alloc string) string {
	return strings.ReplaceAll(task, "/", "_") + "_" + alloc
}

// SandboxName returns the name of the pause container that holds an allocation's network.
func SandboxName(alloc string) string { return "gpu-docker_sandbox_" + alloc }
