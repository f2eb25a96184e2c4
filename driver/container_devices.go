package driver

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/docker/docker/api/types/container"
	"golang.org/x/sys/unix"
)

// devices hands host devices to the container, except the nodes of NVIDIA GPUs:
// those come from the runtime, for the booked GPUs only.
func (b *blueprint) devices() error {
	for _, d := range b.job.Devices {
		if err := checkDevice(d); err != nil {
			return err
		}
		b.host.Devices = append(b.host.Devices, deviceMapping(d.HostPath, d.ContainerPath, d.CgroupPermissions))
	}
	for _, d := range b.task.Devices {
		b.host.Devices = append(b.host.Devices, deviceMapping(d.HostPath, d.TaskPath, d.Permissions))
	}
	return nil
}

func deviceMapping(host, inside, permissions string) container.DeviceMapping {
	if inside == "" {
		inside = host
	}
	if permissions == "" {
		permissions = "rwm"
	}
	return container.DeviceMapping{PathOnHost: host, PathInContainer: inside, CgroupPermissions: permissions}
}

func checkDevice(d Device) error {
	if d.HostPath == "" {
		return fmt.Errorf("config.devices: host_path must name a device of the host")
	}
	if strings.Trim(d.CgroupPermissions, "rwm") != "" {
		return fmt.Errorf("config.devices %s: cgroup_permissions %q may have only r, w and m", d.HostPath, d.CgroupPermissions)
	}
	if !filepath.IsAbs(d.HostPath) {
		return fmt.Errorf("config.devices: %q is not a path; GPUs are given by device blocks only", d.HostPath)
	}
	if node := nvidiaNode(d.HostPath); node != "" {
		return fmt.Errorf("config.devices %s would give %s to the container: GPUs are given by device blocks only", d.HostPath, node)
	}
	return nil
}

// nvidiaNode returns a device node of the NVIDIA driver that path leads to, or "".
// Docker follows links, and hands out every node below a directory.
func nvidiaNode(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if path = filepath.Clean(path); path == "/" {
		return "/dev/nvidia*"
	}
	found := ""
	_ = filepath.WalkDir(path, func(node string, entry fs.DirEntry, err error) error {
		if isNvidia(node) {
			found = node
			return fs.SkipAll
		}
		return nil // what cannot be read holds nothing that Docker could hand out
	})
	return found
}

// isNvidia knows a node by its name, by the driver's device number whatever the
// name, or, for a graphics node, by the vendor of its PCI device.
func isNvidia(node string) bool {
	const nvidiaMajor, nvidiaVendor = 195, "0x10de"
	if strings.HasPrefix(node, "/dev/nvidia") {
		return true
	}
	var stat unix.Stat_t
	if unix.Stat(node, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFCHR && unix.Major(stat.Rdev) == nvidiaMajor {
		return true
	}
	if !strings.HasPrefix(node, "/dev/dri/") {
		return false
	}
	vendor, err := os.ReadFile(filepath.Join("/sys/class/drm", filepath.Base(node), "device/vendor"))
	return err == nil && strings.TrimSpace(string(vendor)) == nvidiaVendor
}
