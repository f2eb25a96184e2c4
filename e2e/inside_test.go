// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/docker"
)

// inside runs a command in the container that a claim names.
func (c *cluster) inside(t *testing.T, container string, command ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	result, err := c.cri.Exec(ctx, container, command, 1<<16)
	must.NoError(t, err)
	must.Eq(t, 0, result.Code, must.Sprintf("%v: %s%s", command, result.Stdout, result.Stderr))
	return string(result.Stdout)
}

// gpusInside returns the device nodes of GPUs in the container, which NVIDIA's
// runtime injected, whatever the environment says.
func (c *cluster) gpusInside(t *testing.T, container string) []string {
	t.Helper()
	return strings.Fields(c.inside(t, container, "sh", "-c", "ls /dev | grep -E '^nvidia[0-9]+$' || true"))
}

// envInside returns the environment of the container's first process.
func (c *cluster) envInside(t *testing.T, container string) map[string]string {
	t.Helper()
	env := map[string]string{}
	for entry := range strings.SplitSeq(c.inside(t, container, "cat", "/proc/1/environ"), "\x00") {
		if key, value, ok := strings.Cut(entry, "="); ok {
			env[key] = value
		}
	}
	return env
}

// container inspects a container.
func (c *cluster) container(t *testing.T, id string) docker.Container {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	found, err := c.cri.Inspect(ctx, id)
	must.NoError(t, err)
	return found
}

// containers returns the IDs of all containers of an allocation, dead ones too.
func (c *cluster) containers(t *testing.T, alloc string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	all, err := c.cri.List(ctx, nil)
	must.NoError(t, err)
	var ids []string
	for _, found := range all {
		if strings.Contains(found.Name, alloc) {
			ids = append(ids, found.ID)
		}
	}
	return ids
}

// networkOf returns the network namespace of a process.
func networkOf(t *testing.T, pid int) string {
	t.Helper()
	namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	must.NoError(t, err)
	return namespace
}

// nodeOf is the device node of a GPU of this cluster in a container.
func nodeOf(gpu allocator.GPUID) string {
	return map[allocator.GPUID]string{bigGPU: "nvidia0", smallGPU: "nvidia1"}[gpu]
}
