package driver

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// hostDevices tells which device nodes of the host a job may have. root is the
// host's file system.
type hostDevices struct{ root string }

// onlyByBlocks ends every refusal of a GPU.
const onlyByBlocks = "GPUs are given by device blocks only"

// nodes returns the device nodes that a job means by path: the one that it leads to,
// or all those below a directory. at is where path leads. They are what Docker is to be
// given, for it would follow links anew, to wherever they lead by then.
//
// Only what root alone can change counts: a task can make nodes and links in its own
// directories, of any device and under any name.
func (h hostDevices) nodes(path string) (at string, nodes []string, err error) {
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
	err = filepath.WalkDir(top, func(node string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil // what cannot be read holds nothing that could be handed out
		case entry.IsDir() && h.settled(filepath.Join(node, "x")) != nil:
			return fs.SkipDir
		case entry.Type()&fs.ModeDevice == 0:
			return nil
		}
		if err := h.checkNode(node); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		nodes = append(nodes, h.outside(node))
		return nil
	})
	if err == nil && len(nodes) == 0 {
		err = fmt.Errorf("%s is no device and holds none", path)
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

// checkNode refuses a node of the NVIDIA driver. A name proves nothing, and so the
// device number counts: by the driver that it belongs to or, for a graphics node, by
// the vendor of its PCI device.
func (h hostDevices) checkNode(node string) error {
	var stat unix.Stat_t
	if err := unix.Lstat(node, &stat); err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFCHR {
		return nil
	}
	major, minor := unix.Major(stat.Rdev), unix.Minor(stat.Rdev)
	name := fmt.Sprintf("%s (device %d:%d)", h.outside(node), major, minor)
	if h.nvidiaMajors()[major] {
		return fmt.Errorf("%s belongs to the NVIDIA driver: %s", name, onlyByBlocks)
	}
	device := filepath.Join(h.root, "sys/dev/char", fmt.Sprintf("%d:%d", major, minor))
	vendor, err := os.ReadFile(filepath.Join(device, "device/vendor"))
	if strings.TrimSpace(string(vendor)) == nvidiaVendor {
		return fmt.Errorf("%s belongs to an NVIDIA GPU: %s", name, onlyByBlocks)
	}
	if major == graphicsMajor && err != nil {
		if _, err := os.Stat(device); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is a graphics device of unknown make: %s", name, onlyByBlocks)
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
	majors := map[uint32]bool{nvidiaMajor: true}
	file, err := os.Open(filepath.Join(h.root, "proc/devices"))
	if err != nil {
		return majors
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan() && lines.Text() != "Block devices:"; {
		number, name, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
		if major, err := strconv.ParseUint(number, 10, 32); err == nil && strings.HasPrefix(name, "nvidia") {
			majors[uint32(major)] = true
		}
	}
	return majors
}
