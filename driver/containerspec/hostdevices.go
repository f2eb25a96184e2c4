// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// hostDevices decides which device nodes of the host a job may have.
type hostDevices struct {
	root    string   // the host's file system
	allowed []string // globs of the operator's allowed_devices
}

// onlyByBlocks ends every refusal of a GPU.
const onlyByBlocks = "GPUs are given by device blocks only"

// nodes returns the device nodes that a job asked for by path: the one that it leads to,
// or all those below a directory. at is where path leads. Docker is given these, since
// it would follow links once more, to wherever they lead by then.
//
// Only what root alone can change counts: a task can make nodes and links in its own
// directories, of any device and under any name.
func (h hostDevices) nodes(asked string) (at string, nodes []string, err error) {
	path := asked
	if !filepath.IsAbs(path) {
		return "", nil, fmt.Errorf("%q is not a path; %s", path, onlyByBlocks)
	}
	if strings.HasPrefix(filepath.Clean(path), "/dev/nvidia") {
		return "", nil, fmt.Errorf("%s belongs to the NVIDIA driver: %s", path, onlyByBlocks)
	}
	top, err := filepath.EvalSymlinks(filepath.Join(h.root, path))
	if err != nil {
		return "", nil, fmt.Errorf("%s cannot be found on this node: %w", path, err)
	}
	if err := h.settled(top); err != nil {
		return "", nil, fmt.Errorf("%s: %w", path, err)
	}
	err = filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil // what cannot be read holds nothing that could be handed out
		case entry.IsDir() && h.settled(filepath.Join(path, "x")) != nil:
			return fs.SkipDir
		case entry.Type()&fs.ModeDevice == 0:
			return nil
		}
		if err := h.checkNode(path); err != nil {
			return fmt.Errorf("%s: %w", asked, err)
		}
		nodes = append(nodes, h.outside(path))
		return nil
	})
	if err == nil && len(nodes) == 0 {
		err = fmt.Errorf("%s is not a device, nor a directory with devices", path)
	}
	return h.outside(top), nodes, err
}

// settled fails unless the path lies below /dev, in directories that root alone may
// write to. /dev/shm is none of these.
func (h hostDevices) settled(path string) error {
	dev := filepath.Join(h.root, "dev")
	inside, err := filepath.Rel(dev, path)
	if err != nil || !filepath.IsLocal(inside) {
		return fmt.Errorf("it leads to %s, which is not below /dev; %s", h.outside(path), onlyByBlocks)
	}
	for dir := filepath.Dir(path); len(dir) >= len(dev); dir = filepath.Dir(dir) {
		var stat unix.Stat_t
		if err := unix.Stat(dir, &stat); err != nil {
			return err
		}
		if stat.Uid != 0 || stat.Mode&0o022 != 0 {
			return fmt.Errorf("it lies in %s, where others than root may make devices", h.outside(dir))
		}
	}
	return nil
}

// outside is a path below root as the host names it.
func (h hostDevices) outside(path string) string {
	return filepath.Join("/", strings.TrimPrefix(path, h.root))
}

// checkNode refuses a node of the NVIDIA driver or of an NVIDIA GPU, always, and any
// other that neither is harmless nor was allowed by the operator. A name proves nothing:
// the type and the device number count.
func (h hostDevices) checkNode(path string) error {
	n, err := h.look(path)
	if err != nil {
		return err
	}
	if err := h.checkMake(n); err != nil {
		return err
	}
	if h.harmless(n) || matchesAny(h.allowed, n.path) {
		return nil
	}
	return fmt.Errorf("%s is not a device that jobs may have: this client's operator may add it to allowed_devices", n)
}

// node is a device node, by what the kernel goes by.
type node struct {
	path         string // as the host names it
	block        bool   // else a character device
	major, minor uint32
}

func (n node) String() string {
	kind := "device"
	if n.block {
		kind = "block device"
	}
	return fmt.Sprintf("%s (%s %d:%d)", n.path, kind, n.major, n.minor)
}

func (h hostDevices) look(path string) (node, error) {
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil {
		return node{}, err
	}
	return node{
		path: h.outside(path), block: stat.Mode&unix.S_IFMT == unix.S_IFBLK, major: unix.Major(stat.Rdev), minor: unix.Minor(stat.Rdev),
	}, nil
}

// checkMake refuses what belongs to the NVIDIA driver or to an NVIDIA GPU.
func (h hostDevices) checkMake(n node) error {
	if n.block {
		return nil // NVIDIA has none
	}
	if h.nvidiaMajors()[n.major] {
		return fmt.Errorf("%s belongs to the NVIDIA driver: %s", n, onlyByBlocks)
	}
	function, found := h.pciFunction(n)
	if found && function.isGPU() || h.passesGPU(n.path) {
		return fmt.Errorf("%s belongs to an NVIDIA GPU: %s", n, onlyByBlocks)
	}
	if n.major == graphicsMajor && !found {
		device := filepath.Join(h.root, "sys/dev/char", fmt.Sprintf("%d:%d", n.major, n.minor))
		if _, err := os.Stat(device); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is a graphics device of unknown make: %s", n, onlyByBlocks)
		}
	}
	return nil
}

const (
	nvidiaMajor   = 195 // assigned for good; further ones are dynamic
	graphicsMajor = 226
	nvidiaVendor  = "0x10de"
)

// nvidiaMajors are the major numbers of the NVIDIA driver's character devices, such as
// nvidia-uvm and nvidia-caps.
func (h hostDevices) nvidiaMajors() map[uint32]bool {
	majors := h.majors(func(name string) bool { return strings.HasPrefix(name, "nvidia") })
	majors[nvidiaMajor] = true
	return majors
}
