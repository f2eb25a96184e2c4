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

	"nomad-gpu-mem/allocator"
)

// Under WSL there is /dev/dxg in place of a node for each GPU.
func TestHostWithOneNodeForAllGPUs(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	host := hostDevices{root: root}
	node := func(name string) {
		must.NoError(t, unix.Mknod(filepath.Join(root, "dev", name), unix.S_IFCHR|0o666, int(unix.Mkdev(10, 125))))
	}
	must.NoError(t, os.MkdirAll(filepath.Join(root, "dev"), 0o755))
	must.False(t, host.sharesGPUs())
	node("dxg")
	must.True(t, host.sharesGPUs())
	must.Nil(t, host.gpuNodes([]allocator.GPUID{"GPU-a"}))
	env, _ := environment(nil, nil, nil, gpuAccess{bookings: []allocator.Booking{slice(gpuA, 1)}, seesAll: host.sharesGPUs()})
	must.SliceContains(t, env, "CUDA_VISIBLE_DEVICES="+string(gpuA))
	node("nvidiactl") // a driver of Linux beside it
	must.False(t, host.sharesGPUs())
}

// TestGPUNodesAreDockersOwn: after a daemon-reload of systemd a container has only those
// devices of which Docker knows. A host that reloaded once listed "c 195:254 rw" and
// "c 195:0 rw" before, and "c 195:* m" after it.
func TestGPUNodesAreDockersOwn(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	must.NoError(t, os.MkdirAll(filepath.Join(root, "dev"), 0o755))
	for node, minor := range map[string]uint32{"nvidia0": 0, "nvidia1": 1, "nvidiactl": 255, "nvidia-uvm": 7} {
		must.NoError(t, unix.Mknod(filepath.Join(root, "dev", node), unix.S_IFCHR|0o666, int(unix.Mkdev(195, minor))))
	}
	must.NoError(t, os.WriteFile(filepath.Join(root, "dev/nvidia3"), nil, 0o600)) // no device
	for slot, uuid := range []string{"GPU-b", "GPU-a", "GPU-gone", "GPU-odd"} {
		dir := filepath.Join(root, fmt.Sprintf("proc/driver/nvidia/gpus/0000:%02d:00.0", slot))
		must.NoError(t, os.MkdirAll(dir, 0o755))
		must.NoError(t, os.WriteFile(filepath.Join(dir, "information"), fmt.Appendf(nil,
			"Model: \t\t NVIDIA H200\nIRQ:   \t\t 255\nGPU UUID: \t %s\nBus Location: \t 0000:%02d:00.0\nDevice Minor: \t %d\nGPU Excluded:\t No\n",
			uuid, slot, slot), 0o600))
	}
	host := hostDevices{root: root}
	node := func(path string) container.DeviceMapping {
		return container.DeviceMapping{PathOnHost: path, PathInContainer: path, CgroupPermissions: "rw"}
	}
	control := []container.DeviceMapping{node("/dev/nvidiactl"), node("/dev/nvidia-uvm")}
	for _, c := range []struct {
		gpus []allocator.GPUID
		want []container.DeviceMapping
	}{
		{nil, nil},
		{[]allocator.GPUID{"GPU-a"}, append([]container.DeviceMapping{node("/dev/nvidia1")}, control...)},
		{[]allocator.GPUID{"GPU-a", "GPU-b"}, append([]container.DeviceMapping{node("/dev/nvidia1"), node("/dev/nvidia0")}, control...)},
		{[]allocator.GPUID{"MIG-1"}, nil},
		{[]allocator.GPUID{"GPU-gone"}, nil},
		{[]allocator.GPUID{"GPU-odd"}, nil},
	} {
		must.Eq(t, c.want, host.gpuNodes(c.gpus), must.Sprint(c.gpus))
	}
	must.Nil(t, hostDevices{root: t.TempDir()}.gpuNodes([]allocator.GPUID{"GPU-a"}), must.Sprint("no NVIDIA driver here"))
}
