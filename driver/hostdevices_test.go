package driver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/shoenig/test/must"
	"golang.org/x/sys/unix"
)

// fakeHost is a host with a GPU, a graphics node of another make, and a scratch
// directory in which everybody may make what they like. It needs root, as the driver does.
func fakeHost(t *testing.T) hostDevices {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"dev/dri", "dev/snd", "dev/shm", "alloc", "proc"} {
		must.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	must.NoError(t, os.Chmod(filepath.Join(root, "dev/shm"), 0o1777))
	for node, number := range map[string][2]uint32{
		"dev/fuse": {10, 229}, "dev/snd/control": {116, 1}, "dev/snd/seq": {116, 2},
		"dev/gpu": {195, 0}, "dev/caps": {236, 1}, "dev/uvm": {510, 0},
		"dev/dri/card0": {226, 0}, "dev/dri/render": {226, 128}, "dev/dri-unknown": {226, 7},
		"alloc/fuse": {10, 229}, "alloc/render": {226, 128}, "dev/shm/fuse": {10, 229},
	} {
		must.NoError(t, unix.Mknod(filepath.Join(root, node), unix.S_IFCHR|0o666, int(unix.Mkdev(number[0], number[1]))))
	}
	must.NoError(t, unix.Mknod(filepath.Join(root, "dev/disk"), unix.S_IFBLK|0o666, int(unix.Mkdev(195, 0))))
	for device, vendor := range map[string]string{"226:0": "0x8086", "226:128": "0x10de"} {
		dir := filepath.Join(root, "sys/dev/char", device, "device")
		must.NoError(t, os.MkdirAll(dir, 0o755))
		must.NoError(t, os.WriteFile(filepath.Join(dir, "vendor"), []byte(vendor+"\n"), 0o600))
	}
	must.NoError(t, os.WriteFile(filepath.Join(root, "proc/devices"),
		[]byte("Character devices:\n  1 mem\n 10 misc\n236 nvidia-caps\n510 nvidia-uvm\n\nBlock devices:\n  7 loop\n"), 0o600))
	for link, target := range map[string]string{"dev/link": "fuse", "dev/gpu-link": "gpu", "alloc/link": "../dev/fuse", "dev/out": "../alloc/fuse"} {
		must.NoError(t, os.Symlink(target, filepath.Join(root, link)))
	}
	return hostDevices{root}
}

// Docker is given nodes, never links, and all of them were looked at.
func TestDeviceMappings(t *testing.T) {
	t.Parallel()
	host := fakeHost(t)
	for _, c := range []struct {
		name   string
		device Device
		want   []container.DeviceMapping
	}{
		{"node", Device{"/dev/fuse", "", "r"}, []container.DeviceMapping{{PathOnHost: "/dev/fuse", PathInContainer: "/dev/fuse", CgroupPermissions: "r"}}},
		{"link", Device{"/dev/link", "", ""}, []container.DeviceMapping{{PathOnHost: "/dev/fuse", PathInContainer: "/dev/link", CgroupPermissions: "rwm"}}},
		{"link of a task to a device", Device{"/alloc/link", "/dev/f", ""}, []container.DeviceMapping{{PathOnHost: "/dev/fuse", PathInContainer: "/dev/f", CgroupPermissions: "rwm"}}},
		{"block device", Device{"/dev/disk", "", ""}, []container.DeviceMapping{{PathOnHost: "/dev/disk", PathInContainer: "/dev/disk", CgroupPermissions: "rwm"}}},
		{"directory", Device{"/dev/snd", "/s", ""}, []container.DeviceMapping{
			{PathOnHost: "/dev/snd/control", PathInContainer: "/s/control", CgroupPermissions: "rwm"},
			{PathOnHost: "/dev/snd/seq", PathInContainer: "/s/seq", CgroupPermissions: "rwm"},
		}},
		{"graphics of another make", Device{"/dev/dri/card0", "", ""}, []container.DeviceMapping{{PathOnHost: "/dev/dri/card0", PathInContainer: "/dev/dri/card0", CgroupPermissions: "rwm"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := c.device.mappings(host)
			must.NoError(t, err)
			must.Eq(t, c.want, got)
		})
	}
}

func TestDeviceRefusals(t *testing.T) {
	t.Parallel()
	host := fakeHost(t)
	for path, want := range map[string]string{
		"":                   "host_path must name",
		"nvidia.com/gpu=all": "GPUs are given by device blocks only",
		"/dev/nvidia0":       "GPUs are given by device blocks only",
		"/dev/./nvidiactl":   "GPUs are given by device blocks only",
		"/":                  "not below /dev",
		"/dev":               "GPUs are given by device blocks only",
		"/dev/none":          "cannot be found",
		"/dev/gpu":           "/dev/gpu (device 195:0) belongs to the NVIDIA driver",
		"/dev/gpu-link":      "/dev/gpu (device 195:0) belongs to the NVIDIA driver",
		"/dev/caps":          "(device 236:1) belongs to the NVIDIA driver",
		"/dev/uvm":           "(device 510:0) belongs to the NVIDIA driver",
		"/dev/dri":           "/dev/dri/render (device 226:128) belongs to an NVIDIA GPU",
		"/dev/dri-unknown":   "of unknown make",
		"/alloc/fuse":        "it leads to /alloc/fuse, which is not below /dev",
		"/alloc/render":      "not below /dev",
		"/dev/out":           "not below /dev",
		"/dev/shm/fuse":      "where others than root may make devices",
		"/proc/devices":      "not below /dev",
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			_, err := Device{HostPath: path}.mappings(host)
			must.ErrorContains(t, err, want)
		})
	}
}
