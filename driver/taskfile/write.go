// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package taskfile

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Replace puts a new file in the place of what has the name: of a link, a device or a file with other names too, none of
// which is touched. A directory is left alone, with an error. The file is there with its whole content or not at all.
func (d *Dir) Replace(path string, text []byte, mode fs.FileMode) error {
	parent, err := d.Dir(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer parent.Close()
	name := filepath.Base(path)
	aside := "." + name + "." + rand.Text()
	if err := parent.create(aside, text, mode); err != nil {
		return err
	}
	if err := unix.Renameat(parent.fd, aside, parent.fd, name); err != nil {
		err = &fs.PathError{Op: "replace", Path: filepath.Join(parent.path, name), Err: err}
		return errors.Join(err, unix.Unlinkat(parent.fd, aside, 0))
	}
	return nil
}

// create makes a file that is not there, or leaves none.
func (d *Dir) create(name string, text []byte, mode fs.FileMode) error {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	path := filepath.Join(d.path, name)
	fd, err := retry(func() (int, error) { return unix.Openat(d.fd, name, flags, 0o600) })
	if err != nil {
		return &fs.PathError{Op: "create", Path: path, Err: err}
	}
	file := os.NewFile(uintptr(fd), path)
	_, err = file.Write(text)
	if err = errors.Join(err, file.Chmod(mode), file.Close()); err != nil {
		return errors.Join(err, unix.Unlinkat(d.fd, name, 0))
	}
	return nil
}

// Overwrite changes the content of a regular file in place, for those who have it mounted. A file with several names is
// refused: the others may be anywhere.
func (d *Dir) Overwrite(path string, text []byte) error {
	found, err := d.find(path)
	if err != nil {
		return err
	}
	defer found.close()
	switch {
	case found.kind() != unix.S_IFREG:
		return found.refuse("a regular file")
	case found.stat.Nlink != 1:
		return found.refuse("one with no other name (hard link)")
	}
	file, err := found.reopen(unix.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(text, 0)
	if err == nil {
		err = file.Truncate(int64(len(text)))
	}
	return errors.Join(err, file.Close())
}
