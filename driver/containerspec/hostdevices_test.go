// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/shoenig/test/must"
	"golang.org/x/sys/unix"

	"nomad-gpu-mem/driver/config"
)

// fakeHost is a host with a GPU, a graphics node of another make, disks, and scratch
// directories in which anyone may make nodes. It needs root, as the driver does.
func fakeHost(t *testing.T, allowed ...string) hostDevices {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"dev/dri", "dev/snd", "dev/shm", "dev/infiniband", "dev/char", "dev/vfio", "dev/mixed", "alloc", "proc"} {
		must.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	must.NoError(t, os.Chmod(filepath.Join(root, "dev/shm"), 0o1777))
	for node, number := range map[string][2]uint32{
		"dev/null": {1, 3}, "dev/zero": {1, 5}, "dev/full": {1, 7}, "dev/random": {1, 8}, "dev/urandom": {1, 9},
		"dev/mem": {1, 1}, "dev/kmem": {1, 2}, "dev/port": {1, 4}, "dev/kmsg": {1, 11},
		"dev/tty0": {4, 0}, "dev/ttyS0": {4, 64}, "dev/console": {5, 1}, "dev/vcs": {7, 0}, "dev/loop-control": {10, 237},
		"dev/watchdog": {10, 130}, "dev/hpet": {10, 228}, "dev/nvram": {10, 144}, "dev/uinput": {10, 223}, "dev/kvm": {10, 232},
		"dev/vhost-net": {10, 238}, "dev/sg0": {21, 0}, "dev/nvme0": {240, 0}, "dev/i2c-0": {89, 0}, "dev/cpu-msr": {202, 0},
		"dev/rtc0": {250, 0}, "dev/ipmi0": {241, 0}, "dev/fb0": {29, 0}, "dev/tun": {10, 200},
		"dev/vfio/7": {243, 0}, "dev/vfio/8": {243, 1}, "dev/vfio/noiommu-9": {243, 2}, "dev/vfio/10": {243, 3}, "dev/vfio/vfio": {10, 196},
		"dev/infiniband/uverbs0": {231, 192}, "dev/infiniband/umad0": {231, 0}, "dev/infiniband/rdma_cm": {10, 58},
		"dev/fuse": {10, 229}, "dev/snd/control": {116, 1}, "dev/snd/seq": {116, 2},
		"dev/gpu": {195, 0}, "dev/caps": {236, 1}, "dev/uvm": {510, 0},
		"dev/dri/card0": {226, 0}, "dev/dri/renderD128": {226, 128}, "dev/dri/card7": {226, 7},
		"dev/misnamed": {10, 229}, "dev/snd/disk": {8, 0}, "dev/i2c-9": {89, 9}, "dev/mixed/fuse": {10, 229},
		"alloc/fuse": {10, 229}, "alloc/render": {226, 128}, "dev/shm/fuse": {10, 229},
	} {
		must.NoError(t, unix.Mknod(filepath.Join(root, node), unix.S_IFCHR|0o666, int(unix.Mkdev(number[0], number[1]))))
	}
	for node, number := range map[string][2]uint32{
		"dev/vda": {253, 0}, "dev/loop0": {7, 0}, "dev/disk": {195, 0}, "dev/zero-disk": {1, 5}, "dev/snd/block": {116, 1},
	} {
		must.NoError(t, unix.Mknod(filepath.Join(root, node), unix.S_IFBLK|0o666, int(unix.Mkdev(number[0], number[1]))))
	}
	pciDevice(t, root, "226:0", "pci0000:00/0000:00:02.0", "0x8086", "0x030000", "drm/card0")
	pciDevice(t, root, "226:128", "pci0000:00/0000:01:00.0", nvidiaVendor, "0x030000", "drm/renderD128")
	pciDevice(t, root, "89:9", "pci0000:00/0000:01:00.0", nvidiaVendor, "0x030000", "i2c-9/i2c-dev/i2c-9")
	pciDevice(t, root, "116:1", "pci0000:00/0000:01:00.1", nvidiaVendor, "0x040300", "sound/card0/controlC0")
	must.NoError(t, os.MkdirAll(filepath.Join(root, "sys/devices/pci0000:00/0000:01:00.0/4b20d080-1b54-4048-85b3-a6a62d165c01"), 0o755))
	for group, device := range map[string]string{
		"7": "0000:01:00.0", "8": "0000:00:02.0", "9": "0000:01:00.0", "10": "0000:01:00.0/4b20d080-1b54-4048-85b3-a6a62d165c01",
	} {
		dir := filepath.Join(root, "sys/kernel/iommu_groups", group, "devices")
		must.NoError(t, os.MkdirAll(dir, 0o755))
		must.NoError(t, os.Symlink(filepath.Join("../../../../devices/pci0000:00", device), filepath.Join(dir, filepath.Base(device))))
	}
	must.NoError(t, os.WriteFile(filepath.Join(root, "proc/devices"),
		[]byte("Character devices:\n  1 mem\n 10 misc\n231 infiniband_verbs\n236 nvidia-caps\n510 nvidia-uvm\n\nBlock devices:\n  7 loop\n"), 0o600))
	must.NoError(t, os.WriteFile(filepath.Join(root, "proc/misc"), []byte(" 58 rdma_cm\n229 fuse\n"), 0o600))
	for link, target := range map[string]string{
		"dev/link": "fuse", "dev/gpu-link": "gpu", "alloc/link": "../dev/fuse", "dev/out": "../alloc/fuse", "dev/disk-link": "vda",
		"alloc/disk": "../dev/vda", "dev/char/10:229": "../fuse", "dev/char/1:1": "../mem", "dev/char/195:0": "../gpu", "dev/mixed/disk": "../vda",
	} {
		must.NoError(t, os.Symlink(target, filepath.Join(root, link)))
	}
	must.NoError(t, unix.Mknod(filepath.Join(root, "dev/mixed/watchdog"), unix.S_IFCHR|0o666, int(unix.Mkdev(10, 130))))
	return hostDevices{root: root, allowed: allowed}
}

// pciDevice is a PCI function in sysfs, and a character device that belongs to it.
func pciDevice(t *testing.T, root, number, function, vendor, class, device string) {
	t.Helper()
	dir := filepath.Join(root, "sys/devices", function)
	must.NoError(t, os.MkdirAll(filepath.Join(dir, device), 0o755))
	must.NoError(t, os.WriteFile(filepath.Join(dir, "vendor"), []byte(vendor+"\n"), 0o600))
	must.NoError(t, os.WriteFile(filepath.Join(dir, "class"), []byte(class+"\n"), 0o600))
	must.NoError(t, os.MkdirAll(filepath.Join(root, "sys/dev/char"), 0o755))
	must.NoError(t, os.Symlink(filepath.Join("../../devices", function, device), filepath.Join(root, "sys/dev/char", number)))
}

// Docker is given nodes, never links, and all of them were looked at.
func TestDeviceMappings(t *testing.T) {
	t.Parallel()
	host := fakeHost(t)
	same := func(paths ...string) (all []container.DeviceMapping) {
		for _, path := range paths {
			all = append(all, container.DeviceMapping{PathOnHost: path, PathInContainer: path, CgroupPermissions: "rwm"})
		}
		return all
	}
	for _, c := range []struct {
		name   string
		device config.Device
		want   []container.DeviceMapping
	}{
		{"node", config.Device{HostPath: "/dev/fuse", ContainerPath: "", CgroupPermissions: "r"}, []container.DeviceMapping{{PathOnHost: "/dev/fuse", PathInContainer: "/dev/fuse", CgroupPermissions: "r"}}},
		{"link", config.Device{HostPath: "/dev/link", ContainerPath: "", CgroupPermissions: ""}, []container.DeviceMapping{{PathOnHost: "/dev/fuse", PathInContainer: "/dev/link", CgroupPermissions: "rwm"}}},
		{"link of a task to a device", config.Device{HostPath: "/alloc/link", ContainerPath: "/dev/f", CgroupPermissions: ""}, []container.DeviceMapping{{PathOnHost: "/dev/fuse", PathInContainer: "/dev/f", CgroupPermissions: "rwm"}}},
		{"by number", config.Device{HostPath: "/dev/char/10:229", ContainerPath: "/dev/f", CgroupPermissions: ""}, []container.DeviceMapping{{PathOnHost: "/dev/fuse", PathInContainer: "/dev/f", CgroupPermissions: "rwm"}}},
		{"null", config.Device{HostPath: "/dev/null", ContainerPath: "", CgroupPermissions: ""}, same("/dev/null")},
		{"zero", config.Device{HostPath: "/dev/zero", ContainerPath: "", CgroupPermissions: ""}, same("/dev/zero")},
		{"full", config.Device{HostPath: "/dev/full", ContainerPath: "", CgroupPermissions: ""}, same("/dev/full")},
		{"random", config.Device{HostPath: "/dev/random", ContainerPath: "", CgroupPermissions: ""}, same("/dev/random")},
		{"urandom", config.Device{HostPath: "/dev/urandom", ContainerPath: "", CgroupPermissions: ""}, same("/dev/urandom")},
		{"verbs", config.Device{HostPath: "/dev/infiniband/uverbs0", ContainerPath: "", CgroupPermissions: ""}, same("/dev/infiniband/uverbs0")},
		{"connections of RDMA", config.Device{HostPath: "/dev/infiniband/rdma_cm", ContainerPath: "", CgroupPermissions: ""}, same("/dev/infiniband/rdma_cm")},
		{"sound of a graphics card", config.Device{HostPath: "/dev/snd/control", ContainerPath: "", CgroupPermissions: ""}, same("/dev/snd/control")},
		{"graphics of another make", config.Device{HostPath: "/dev/dri/card0", ContainerPath: "", CgroupPermissions: ""}, same("/dev/dri/card0")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := mappings(c.device, host)
			must.NoError(t, err)
			must.Eq(t, c.want, got)
		})
	}
}

func TestDeviceRefusals(t *testing.T) {
	t.Parallel()
	host := fakeHost(t)
	for path, want := range map[string]string{
		"":                    "host_path must name",
		"nvidia.com/gpu=all":  "GPUs are given by device blocks only",
		"/dev/nvidia0":        "GPUs are given by device blocks only",
		"/dev/./nvidiactl":    "GPUs are given by device blocks only",
		"/":                   "not below /dev",
		"/dev":                "/dev",
		"/dev/none":           "cannot be found",
		"/dev/gpu":            "/dev/gpu (device 195:0) belongs to the NVIDIA driver",
		"/dev/gpu-link":       "/dev/gpu (device 195:0) belongs to the NVIDIA driver",
		"/dev/char/195:0":     "/dev/gpu (device 195:0) belongs to the NVIDIA driver",
		"/dev/caps":           "(device 236:1) belongs to the NVIDIA driver",
		"/dev/uvm":            "(device 510:0) belongs to the NVIDIA driver",
		"/dev/dri":            "/dev/dri/",
		"/dev/dri/renderD128": "/dev/dri/renderD128 (device 226:128) belongs to an NVIDIA GPU",
		"/dev/dri/card7":      "of unknown make",
		"/dev/i2c-9":          "/dev/i2c-9 (device 89:9) belongs to an NVIDIA GPU",
		"/dev/vfio/7":         "/dev/vfio/7 (device 243:0) belongs to an NVIDIA GPU",
		"/dev/vfio/noiommu-9": "belongs to an NVIDIA GPU",
		"/dev/vfio/10":        "belongs to an NVIDIA GPU", // a virtual one
		"/alloc/fuse":         "it leads to /alloc/fuse, which is not below /dev",
		"/alloc/render":       "not below /dev",
		"/dev/out":            "not below /dev",
		"/dev/shm/fuse":       "where others than root may make devices",
		"/proc/devices":       "not below /dev",
		"/dev/vda":            "/dev/vda (block device 253:0)",
		"/dev/disk-link":      "/dev/vda (block device 253:0)",
		"/alloc/disk":         "/dev/vda (block device 253:0)",
		"/dev/mem":            "/dev/mem (device 1:1)",
		"/dev/char/1:1":       "/dev/mem (device 1:1)",
		"/dev/misnamed":       "allowed_devices", // a harmless number under another name: not what the kernel put there
		"/dev/snd/disk":       "/dev/snd/disk (device 8:0)",
		"/dev/snd/block":      "/dev/snd/block (block device 116:1)",
		"/dev/zero-disk":      "/dev/zero-disk (block device 1:5)",
		"/dev/mixed":          "allowed_devices",
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			_, err := mappings(config.Device{HostPath: path}, host)
			must.ErrorContains(t, err, want)
		})
	}
	for _, name := range []string{
		"kmem", "port", "kmsg", "tty0", "ttyS0", "console", "vcs", "loop-control", "loop0", "watchdog", "hpet", "nvram", "uinput",
		"kvm", "vhost-net", "sg0", "nvme0", "i2c-0", "cpu-msr", "rtc0", "ipmi0", "fb0", "tun", "vfio/8", "vfio/vfio", "infiniband/umad0",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := mappings(config.Device{HostPath: "/dev/" + name}, host)
			must.ErrorContains(t, err, "this client's operator may add it to allowed_devices")
		})
	}
}

// What the operator lists is allowed by the path where the kernel's node is, whatever
// way leads there; the GPUs of this node never are.
func TestDevicesThatTheOperatorAllows(t *testing.T) {
	t.Parallel()
	host := fakeHost(t, "/dev/vda", "/dev/vfio/*", "/dev/dri/*", "/dev/i2c-*", "/dev/gpu*", "/alloc/*", "/dev/shm/*", "/dev/caps", "/dev/uvm")
	for path, want := range map[string]string{
		"/dev/vda": "/dev/vda", "/dev/disk-link": "/dev/vda", "/alloc/disk": "/dev/vda", "/dev/vfio/8": "/dev/vfio/8",
		"/dev/vfio/vfio": "/dev/vfio/vfio", "/dev/i2c-0": "/dev/i2c-0", "/dev/dri/card0": "/dev/dri/card0", "/dev/fuse": "/dev/fuse",
	} {
		got, err := mappings(config.Device{HostPath: path}, host)
		must.NoError(t, err, must.Sprint(path))
		must.SliceLen(t, 1, got)
		must.Eq(t, want, got[0].PathOnHost)
	}
	for _, path := range []string{
		"/dev/vfio/7", "/dev/vfio/noiommu-9", "/dev/vfio", "/dev/dri/renderD128", "/dev/dri/card7", "/dev/i2c-9", "/dev/gpu", "/dev/gpu-link",
		"/dev/caps", "/dev/uvm", "/alloc/fuse", "/dev/shm/fuse", "/dev/mem", "/dev/loop0",
	} {
		_, err := mappings(config.Device{HostPath: path}, host)
		must.Error(t, err, must.Sprint(path))
	}
}
