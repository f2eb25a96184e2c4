// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package taskfile

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Held is a file of any kind, or a directory, that is held by itself and not by its name. It was looked up, but not
// opened: nothing has happened to it.
type Held struct{ *node }

// Hold looks up a path below d without following links.
func (d *Dir) Hold(path string) (Held, error) {
	found, err := d.find(path)
	return Held{found}, err
}

// HoldOrMake is Hold, and makes a path that does not exist, as directories that belong to root.
func (d *Dir) HoldOrMake(path string) (Held, error) {
	found, err := d.find(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return Held{found}, err
	}
	if err := d.makeAll(path); err != nil {
		return Held{}, err
	}
	return d.Hold(path)
}

// makeAll makes the directories of a path below d that do not exist.
func (d *Dir) makeAll(path string) error {
	made := ""
	for name := range strings.SplitSeq(filepath.Clean(path), string(filepath.Separator)) {
		parent, err := d.Dir(filepath.Join(".", made))
		if err != nil {
			return err
		}
		err = unix.Mkdirat(parent.fd, name, 0o755)
		parent.Close()
		made = filepath.Join(made, name)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return &fs.PathError{Op: "mkdir", Path: filepath.Join(d.path, made), Err: err}
		}
	}
	return nil
}

// IsDir reports whether it is a directory.
func (h Held) IsDir() bool { return h.kind() == unix.S_IFDIR }

// Path is a path by which this process reaches the very file, whatever has its name now, until Close.
func (h Held) Path() string { return h.byNumber() }

// Close closes the file.
func (h Held) Close() { h.close() }
