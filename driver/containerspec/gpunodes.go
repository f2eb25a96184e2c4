// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"bufio"
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"golang.org/x/sys/unix"

	"nomad-gpu-mem/allocator"
)

// gpuNodes are the device nodes of GPUs, and those that every use of a GPU needs.
//
// The NVIDIA runtime adds them too, but in some of its modes without Docker's knowledge.
// The next `systemctl daemon-reload`, as after a package update, then removes them, and
// programs find no GPU. Nodes that the driver requests from Docker stay.
//
// A GPU's node is found by the UUID that the kernel driver reports. Only the runtime adds
// the nodes of GPUs that it does not report, such as MIG instances.
func (h hostDevices) gpuNodes(gpus []allocator.GPUID) (nodes []container.DeviceMapping) {
	return h.nodesOf(gpus, h.gpuMinors(), true)
}

// allGPUNodes are those of an observer. Without compute it gets no node of unified memory,
// without which CUDA does not start.
func (h hostDevices) allGPUNodes(compute bool) []container.DeviceMapping {
	minors := h.gpuMinors()
	return h.nodesOf(slices.Sorted(maps.Keys(minors)), minors, compute)
}

func (h hostDevices) nodesOf(gpus []allocator.GPUID, minors map[allocator.GPUID]string, compute bool) (nodes []container.DeviceMapping) {
	for _, gpu := range gpus {
		if minor, known := minors[gpu]; known {
			nodes = h.appendNode(nodes, "/dev/nvidia"+minor)
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	nodes = h.appendNode(nodes, "/dev/nvidiactl")
	if compute {
		nodes = h.appendNode(nodes, "/dev/nvidia-uvm")
		nodes = h.appendNode(nodes, "/dev/nvidia-uvm-tools")
	}
	return nodes
}

// SharesGPUs reports whether the host below root has one device node for all of its GPUs.
func SharesGPUs(root string) bool { return hostDevices{root: root}.sharesGPUs() }

// sharesGPUs reports whether the host has one device node for all GPUs, as WSL has: a
// container with that node can use each GPU, whatever NVIDIA_VISIBLE_DEVICES says.
func (h hostDevices) sharesGPUs() bool { return h.isNode("/dev/dxg") && !h.isNode("/dev/nvidiactl") }

// isNode reports whether there is a character device.
func (h hostDevices) isNode(path string) bool {
	var stat unix.Stat_t
	return unix.Lstat(filepath.Join(h.root, path), &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFCHR
}

// appendNode adds a node that is there: Docker refuses others.
func (h hostDevices) appendNode(nodes []container.DeviceMapping, path string) []container.DeviceMapping {
	if !h.isNode(path) {
		return nodes
	}
	return append(nodes, deviceMapping(path, "", "rw"))
}

// gpuMinors are the numbers in the names of GPUs' device nodes.
func (h hostDevices) gpuMinors() map[allocator.GPUID]string {
	minors := map[allocator.GPUID]string{}
	files, _ := filepath.Glob(filepath.Join(h.root, "proc/driver/nvidia/gpus/*/information")) // the pattern is a good one
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		var gpu, minor string
		for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
			switch name, value, _ := strings.Cut(lines.Text(), ":"); name {
			case "GPU UUID":
				gpu = strings.TrimSpace(value)
			case "Device Minor":
				minor = strings.TrimSpace(value)
			}
		}
		if gpu != "" && minor != "" {
			minors[allocator.GPUID(gpu)] = minor
		}
	}
	return minors
}
