// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package taskfile

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// ErrSize is returned for a file that is larger than the caller allows.
var ErrSize = errors.New("file is too large")

// File is a regular file that is open for reading, up to the size that it had then: a task that appends to it keeps no
// reader busy.
type File struct {
	*io.SectionReader
	file *os.File
}

// Open opens a regular file for reading.
func (d *Dir) Open(path string) (*File, error) {
	found, err := d.find(path)
	if err != nil {
		return nil, err
	}
	defer found.close()
	return found.open()
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

// ReadFile returns the content of a regular file of at most that many bytes.
func (d *Dir) ReadFile(path string, most int64) ([]byte, error) {
	file, err := d.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return file.all(most)
}

// ReadHost is ReadFile for a path of the host. Links are followed: it is for callers who may name any file anyway.
func ReadHost(path string, most int64) ([]byte, error) {
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	found, err := newNode(fd, path)
	if err != nil {
		return nil, err
	}
	defer found.close()
	file, err := found.open()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return file.all(most)
}

func (n *node) open() (*File, error) {
	if n.kind() != unix.S_IFREG {
		return nil, n.refuse("a regular file")
	}
	file, err := n.reopen(unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &File{io.NewSectionReader(file, 0, info.Size()), file}, nil
}

func (f *File) all(most int64) ([]byte, error) {
	if f.Size() > most {
		return nil, fmt.Errorf("%w: %s has %d bytes, at most %d are read", ErrSize, f.file.Name(), f.Size(), most)
	}
	return io.ReadAll(f)
}
