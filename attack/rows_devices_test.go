// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package attack

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// rowsOfDevices attack device nodes of the host. A row never opens a dangerous device: the
// test reads on the host what the kernel lets the container open.
func rowsOfDevices() (all []attack) {
	const spoil = `echo ` + written + ` | dd of=/x bs=64 conv=notrunc; echo ` + written + ` | dd of={disk} bs=64 conv=notrunc; cat /x`
	disk := func(name, tries, first, config, script string) {
		all = append(all, attack{
			name: name, tries: "to write to a disk of the host " + tries, needs: needsDisk, looks: "the container's device access",
			job: job{first: first, config: config, script: script}, look: noDevice("{disk}"),
		})
	}
	device := func(path string) string {
		return fmt.Sprintf(`devices = [{ host_path = "%s", container_path = "/x" }]`, path)
	}
	disk("disk", "by its name", "", device("{disk}"), spoil)
	disk("disk-read-only", "that it asked to read only", "", `devices = [{ host_path = "{disk}", container_path = "/x", cgroup_permissions = "r" }]`, spoil)
	disk("disk-to-make", "by a node that it may make, with permissions m", "", `devices = [{ host_path = "{disk}", container_path = "/x", cgroup_permissions = "m" }]`, spoil)
	disk("disk-spelled", "by /dev/../dev/…", "", device("/dev/..{disk}"), spoil)
	disk("disk-by-proc", "by /proc/self/root/dev/…", "", device("/proc/self/root{disk}"), spoil)
	disk("disk-by-proc-1", "by /proc/1/root/dev/…", "", device("/proc/1/root{disk}"), spoil)
	disk("disk-by-number", "by /dev/block/…", "", device("/dev/block/{disk-number}"), spoil)
	disk("disk-by-link", "by a link that an earlier start made", `ln -s {disk} /local/x`, device("{alloc}/app/local/x"), spoil)
	disk("disk-by-node", "by a node that an earlier start made", `mknod /local/x {disk-node}`, device("{alloc}/app/local/x"), spoil)
	disk("disk-by-own-node", "by a node that it makes itself", "", "", `mknod /x {disk-node}; mknod /local/x {disk-node}; dd if=/local/x bs=64 count=1; `+spoil)
	disk("disk-in-volume", "by a volume of its node", "", `volumes = ["{disk}:/x"]`, spoil)
	disk("disk-in-all-of-dev", "by all of /dev", "", device("/dev"), spoil)
	disk("disk-by-mount", "by mounting it", "", "", `mknod /x {disk-node}; mkdir -p /m; mount /x /m; `+spoil)
	for i, path := range []string{
		"/dev/kmsg", "/dev/mem", "/dev/kmem", "/dev/port", "/dev/loop-control", "/dev/console", "/dev/tty0", "/dev/tty1", "/dev/ttyS0", "/dev/vcs", "/dev/vcsa1",
		"/dev/watchdog", "/dev/watchdog0", "/dev/ipmi0", "/dev/i2c-0", "/dev/vfio/vfio", "/dev/btrfs-control", "/dev/autofs", "/dev/cpu_dma_latency",
		"/dev/userfaultfd", "/dev/mapper/control", "/dev/uinput", "/dev/nvram", "/dev/hpet", "/dev/cuse", "/dev/vhost-net", "/dev/kvm", "/dev/cpu", "/dev/zram0", "/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/nvme0", "/dev/sg0", "/dev/raw/rawctl", "/dev/vga_arbiter",
	} {
		all = append(all, attack{
			name: "device" + strings.ReplaceAll(path, "/", "-"), tries: "to have the host's " + path, looks: "the container's device access",
			needs: needsNode(path), slow: i > 5, job: job{config: device(path), script: `true`}, look: noDevice(path),
		})
	}
	return append(all, rowsOfNvidiaNodes(device)...)
}

// rowsOfNvidiaNodes make a node with the NVIDIA driver's number. No driver is loaded, so
// it cannot be opened.
func rowsOfNvidiaNodes(device func(string) string) (all []attack) {
	const dir = "/dev/gpu-mem-attack"
	for _, c := range []struct{ name, tries, first, path string }{
		{"by-another-name", "under another name", "", dir + "/harmless"},
		{"by-directory", "by the directory that it is in", "", dir},
		{"by-link", "by a link in /dev", "", dir + "/link"},
		{"by-link-of-its-own", "by a link that an earlier start made", "ln -s " + dir + "/harmless /local/x", "{alloc}/app/local/x"},
		{"by-node-of-its-own", "by a node that an earlier start made", "mknod /local/x c 195 1", "{alloc}/app/local/x"},
		{"by-proc", "by /proc/self/root", "", "/proc/self/root" + dir + "/harmless"},
		{"in-shm", "by a node in /dev/shm", "", "/dev/shm/../gpu-mem-attack/harmless"},
		{"by-run", "by the node that NVIDIA's runtime has", "", "{run}/dev/nvidia1"},
		{"by-cdi-name", "by a CDI name", "", "nvidia.com/gpu=all"},
		{"by-cdi-uuid", "by a CDI name with its UUID", "", "nvidia.com/gpu={gpu1}"},
	} {
		all = append(all, attack{
			name: "nvidia-node-" + c.name, tries: "to have a GPU's device node " + c.tries, looks: "the container's device access, GPUs that it reaches",
			job: job{first: c.first, config: device(c.path), script: `true`}, before: nvidiaNode(dir),
			look: both(noDevice(dir+"/harmless"), sees()),
		})
	}
	return all
}

func nvidiaNode(dir string) func(*scene, *intruder) error {
	return func(_ *scene, in *intruder) error {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		in.t.Cleanup(func() { _ = os.RemoveAll(dir) })
		if err := unix.Mknod(filepath.Join(dir, "harmless"), unix.S_IFCHR|0o666, int(unix.Mkdev(195, 1))); err != nil {
			return err
		}
		return os.Symlink("harmless", filepath.Join(dir, "link"))
	}
}
