// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/shoenig/test/must"
	"golang.org/x/sys/unix"

	"nomad-gpu-mem/driver/config"
)

// hostWith is the root of a host with device nodes, and with GPUs by the numbers in their
// nodes' names.
func hostWith(t *testing.T, nodes []string, gpus map[int]string) (root string) {
	t.Helper()
	root = t.TempDir()
	must.NoError(t, os.MkdirAll(filepath.Join(root, "dev"), 0o755))
	for minor, node := range nodes {
		must.NoError(t, unix.Mknod(filepath.Join(root, "dev", node), unix.S_IFCHR|0o666, int(unix.Mkdev(195, uint32(minor)))))
	}
	for minor, uuid := range gpus {
		dir := filepath.Join(root, fmt.Sprintf("proc/driver/nvidia/gpus/0000:%02d:00.0", minor))
		must.NoError(t, os.MkdirAll(dir, 0o755))
		must.NoError(t, os.WriteFile(filepath.Join(dir, "information"), fmt.Appendf(nil, "GPU UUID: %s\nDevice Minor: %d\n", uuid, minor), 0o600))
	}
	return root
}

func paths(devices []container.DeviceMapping) (all []string) {
	for _, device := range devices {
		all = append(all, device.PathOnHost)
	}
	return all
}

// A container is given the nodes of its own GPUs, however else the GPUs reach it, and
// those that CUDA needs. One without a GPU gets none.
func TestContainerHasTheNodesOfItsGPUs(t *testing.T) {
	t.Parallel()
	root := hostWith(t, []string{"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"}, map[int]string{0: string(gpuB), 1: string(gpuA)})
	for _, way := range []config.Injection{config.ByRuntime, config.ByCDI} {
		in := newInput(t, ``, ``, slice(gpuA, 1))
		in.Root, in.Injection = root, way
		must.Eq(t, []string{"/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"}, paths(build(t, in).Host.Devices))
	}
	plain := newInput(t, ``, ``)
	plain.Root = root
	must.SliceEmpty(t, build(t, plain).Host.Devices)

	observer := observerInput(t, `runtime = "nvidia"`, observing)
	observer.Root = root
	must.Eq(t, []string{"/dev/nvidia1", "/dev/nvidia0", "/dev/nvidiactl"}, paths(build(t, observer).Host.Devices))
}

// Where one node leads to all GPUs, a variable names those of the task to CUDA programs.
func TestContainerOnAHostWithOneNodeForAllGPUs(t *testing.T) {
	t.Parallel()
	in := newInput(t, ``, ``, slice(gpuA, 1))
	in.Root = hostWith(t, []string{"dxg"}, nil)
	in.Task.Env = map[string]string{"CUDA_VISIBLE_DEVICES": "0,1"}
	must.Eq(t, string(gpuA), parseEnv(build(t, in).Config.Env)["CUDA_VISIBLE_DEVICES"])
	in.Root = hostWith(t, []string{"nvidia0", "nvidiactl"}, nil)
	must.Eq(t, "0,1", parseEnv(build(t, in).Config.Env)["CUDA_VISIBLE_DEVICES"])
}
