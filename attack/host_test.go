// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package attack

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// tree is the content of a directory: mode and content by path, without following links.
type tree map[string]string

func treeOf(dir string) (tree, error) {
	found := tree{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		switch info.Mode().Type() {
		case 0:
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += fmt.Sprintf(" %d %x", len(content), sha256.Sum256(content))
		case fs.ModeSymlink:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			text += " " + to
		}
		found[strings.TrimPrefix(path, dir)] = text
		return nil
	})
	return found, err
}

// changed returns what has changed.
func (before tree) changed(dir string) error {
	now, err := treeOf(dir)
	if err != nil {
		return err
	}
	var changes []string
	for path := range maps.Keys(now) {
		if _, there := before[path]; !there {
			changes = append(changes, path+" is new")
		} else if before[path] != now[path] {
			changes = append(changes, path+" has changed")
		}
	}
	for path := range maps.Keys(before) {
		if _, there := now[path]; !there {
			changes = append(changes, path+" is gone")
		}
	}
	if len(changes) == 0 {
		return nil
	}
	slices.Sort(changes)
	return fmt.Errorf("files of the host: in %s, %s", filepath.Base(dir), strings.Join(changes, ", "))
}

// disk is a block device of the host, with a file under it.
type disk struct {
	path         string // such as /dev/loop3
	major, minor uint32
	content      []byte
	held         *os.File
}

const diskSize = 64 << 10

// newDisk sets up a loop device over a file. The test uses no other disk.
func newDisk(file string) (*disk, error) {
	content := []byte(`{"defaultAction":"SCMP_ACT_ALLOW","x":"a disk of the host: ` + secret + `"}`) // reads as a profile
	content = append(content, bytes.Repeat([]byte(" "), diskSize)...)[:diskSize]
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return nil, err
	}
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("no loop device: %s", bytes.TrimSpace(out))
	}
	d := &disk{path: strings.TrimSpace(string(out)), content: content}
	d.held, err = os.Open(d.path)
	// An open loop device stays until it is closed, also if this process is killed.
	if out, detachErr := exec.Command("losetup", "--detach", d.path).CombinedOutput(); detachErr != nil {
		err = errors.Join(err, fmt.Errorf("detaching %s: %s", d.path, out))
	}
	if err != nil {
		return nil, err
	}
	n, err := nodeAt(d.path)
	d.major, d.minor = n.major, n.minor
	return d, err
}

func (d *disk) detach() { _ = d.held.Close() }

// changed reads the device as a file system would.
func (d *disk) changed() error {
	now, err := os.ReadFile(d.path)
	if err != nil {
		return err
	}
	if bytes.Equal(now, d.content) {
		return nil
	}
	return fmt.Errorf("the host's disk was written to: it begins with %q", now[:min(40, len(now))])
}

// node is a device node of the host.
type node struct {
	path         string
	kind         byte // c or b
	major, minor uint32
}

func nodeAt(path string) (node, error) {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return node{}, err
	}
	n := node{path: path, major: unix.Major(stat.Rdev), minor: unix.Minor(stat.Rdev)}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFCHR:
		n.kind = 'c'
	case unix.S_IFBLK:
		n.kind = 'b'
	default:
		return n, fmt.Errorf("%s is not a device", path)
	}
	return n, nil
}

// needsNode skips a row on machines that lack a device.
func needsNode(path string) func(*scene) string {
	return func(*scene) string {
		if _, err := nodeAt(path); err != nil {
			return "no " + path + " on this machine"
		}
		return ""
	}
}

func needsDisk(s *scene) string {
	if s.disk == nil {
		return "no loop device on this machine"
	}
	return ""
}
