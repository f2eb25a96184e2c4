// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ryanuber/go-glob"
)

// harmlessDevices are the character devices that a job may have without the operator's
// consent: by the path of the kernel's own node and by its number, both. None of them gives
// access to disks, memory, consoles or hardware that others use.
//
//	null, zero, full, random, urandom  every container has them
//	fuse                               file systems in user space; to mount one takes a capability besides
//	snd/*                              sound
//	dri/*                              graphics of makes other than NVIDIA
//	infiniband/uverbs*, rdma_cm        RDMA; umad and issm are not, for they manage the fabric
var harmlessDevices = []deviceRule{
	{path: "/dev/null", major: 1, minors: []uint32{3}},
	{path: "/dev/zero", major: 1, minors: []uint32{5}},
	{path: "/dev/full", major: 1, minors: []uint32{7}},
	{path: "/dev/random", major: 1, minors: []uint32{8}},
	{path: "/dev/urandom", major: 1, minors: []uint32{9}},
	{path: "/dev/fuse", major: miscMajor, minors: []uint32{229}},
	{path: "/dev/snd/*", major: 116},
	{path: "/dev/dri/*", major: graphicsMajor},
	{path: "/dev/infiniband/uverbs*", driver: "infiniband_verbs"},
	{path: "/dev/infiniband/rdma_cm", major: miscMajor, misc: "rdma_cm"},
}

// deviceRule describes devices of one kind.
type deviceRule struct {
	path   string // glob
	major  uint32
	minors []uint32 // none: any
	driver string   // in place of major, for a number that the kernel hands out
	misc   string   // in place of minors, likewise
}

const miscMajor = 10

func (h hostDevices) harmless(n node) bool {
	return !n.block && slices.ContainsFunc(harmlessDevices, func(rule deviceRule) bool { return h.follows(n, rule) })
}

func (h hostDevices) follows(n node, rule deviceRule) bool {
	switch {
	case !glob.Glob(rule.path, n.path):
		return false
	case rule.driver != "":
		return h.majors(func(name string) bool { return name == rule.driver })[n.major]
	case rule.misc != "":
		return n.major == rule.major && h.miscMinor(rule.misc, n.minor)
	}
	return n.major == rule.major && (len(rule.minors) == 0 || slices.Contains(rule.minors, n.minor))
}

// miscMinor reports whether a driver of miscellaneous devices has the minor number.
func (h hostDevices) miscMinor(driver string, minor uint32) bool {
	text, err := os.ReadFile(filepath.Join(h.root, "proc/misc"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == strconv.Itoa(int(minor)) && fields[1] == driver {
			return true
		}
	}
	return false
}

// majors are the major numbers of the character devices of drivers with such a name.
func (h hostDevices) majors(named func(name string) bool) map[uint32]bool {
	found := map[uint32]bool{}
	file, err := os.Open(filepath.Join(h.root, "proc/devices"))
	if err != nil {
		return found
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan() && lines.Text() != "Block devices:"; {
		number, name, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
		if major, err := strconv.ParseUint(number, 10, 32); err == nil && named(name) {
			found[uint32(major)] = true
		}
	}
	return found
}

// pciFunction is what a device hangs on.
type pciFunction struct{ vendor, class string }

// isGPU reports whether it is an NVIDIA function that gives access to a GPU or to the
// fabric between GPUs. The sound of a graphics card and bridges do not.
func (f pciFunction) isGPU() bool {
	const sound, bridge = "0x0403", "0x0604"
	return f.vendor == nvidiaVendor && !strings.HasPrefix(f.class, sound) && !strings.HasPrefix(f.class, bridge)
}

// pciFunction finds the PCI function that a character device belongs to.
func (h hostDevices) pciFunction(n node) (f pciFunction, found bool) {
	return h.functionAbove(filepath.Join(h.root, "sys/dev/char", fmt.Sprintf("%d:%d", n.major, n.minor)))
}

// functionAbove is the nearest PCI function at or above a device in sysfs, since there
// may be devices of other buses in between.
func (h hostDevices) functionAbove(device string) (f pciFunction, found bool) {
	dir, err := filepath.EvalSymlinks(device)
	if err != nil {
		return pciFunction{}, false
	}
	top := filepath.Join(h.root, "sys")
	for ; len(dir) > len(top); dir = filepath.Dir(dir) {
		if vendor := sysfsValue(dir, "vendor"); strings.HasPrefix(vendor, "0x") {
			return pciFunction{vendor: vendor, class: sysfsValue(dir, "class")}, true
		}
	}
	return pciFunction{}, false
}

func sysfsValue(dir, name string) string {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// passesGPU reports whether a node of VFIO hands out an IOMMU group that has an NVIDIA
// GPU in it, or a virtual GPU of one. NVIDIA's driver has no node for such a GPU.
func (h hostDevices) passesGPU(path string) bool {
	group, isGroup := strings.CutPrefix(path, "/dev/vfio/")
	if !isGroup {
		return false
	}
	group = strings.TrimPrefix(group, "noiommu-")
	functions, _ := filepath.Glob(filepath.Join(h.root, "sys/kernel/iommu_groups", filepath.Base(group), "devices/*")) // the pattern is valid
	return slices.ContainsFunc(functions, func(device string) bool {
		function, found := h.functionAbove(device)
		return found && function.isGPU()
	})
}
