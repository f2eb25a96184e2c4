// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package taskfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrKind is returned for a name that is something else than what was asked for: a link, a device, a FIFO, a socket, a
// directory, or a file with several names.
var ErrKind = errors.New("unexpected kind of file")

// Dir is a directory that is held open. Paths below it are relative, without "..".
type Dir struct{ node }

// node is a file of any kind that was looked up, but not opened: nothing has happened to it.
type node struct {
	fd   int // O_PATH
	path string
	stat unix.Stat_t
}

// OpenDir opens the directory of an allocation. What lies above it belongs to Nomad's agent and may have links.
func OpenDir(path string) (*Dir, error) {
	path = filepath.Clean(path)
	return asDir(lookUp(unix.AT_FDCWD, path, path))
}

// Dir opens a directory below d.
func (d *Dir) Dir(path string) (*Dir, error) { return asDir(d.find(path)) }

// Dirs are the names of the directories in a directory below d, sorted.
func (d *Dir) Dirs(path string) (names []string, err error) {
	dir, err := d.Dir(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	file, err := dir.reopen(unix.O_RDONLY | unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	entries, err := file.ReadDir(-1)
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	slices.Sort(names)
	return names, err
}

// Close closes the directory.
func (d *Dir) Close() { d.close() }

// Check fails if a component of path is a link. What does not exist is fine.
func (d *Dir) Check(path string) error {
	found, err := d.find(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		found.close()
	}
	return err
}

// Contains fails if path leads out of d. It follows links, as Docker will: of a path that exists in part, the part that
// exists counts, and a link to nothing is refused. The answer holds until a task changes a link.
func (d *Dir) Contains(path string) error {
	root, err := os.OpenRoot(d.byNumber())
	if err != nil {
		return err
	}
	defer root.Close()
	for {
		_, err := root.Stat(path)
		if err == nil {
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("it leaves the allocation's directory or cannot be followed: %w", err)
		}
		if _, err := root.Lstat(path); err == nil {
			return fmt.Errorf("%s is a link to something that does not exist", path)
		}
		if path == "." {
			return nil
		}
		path = filepath.Dir(path)
	}
}

// find looks up a path below d without following links.
func (d *Dir) find(path string) (*node, error) {
	if !filepath.IsLocal(path) {
		return nil, fmt.Errorf("%q is not a path inside %s: %w", path, d.path, fs.ErrInvalid)
	}
	at := &d.node
	for name := range strings.SplitSeq(filepath.Clean(path), string(filepath.Separator)) {
		next, err := lookUp(at.fd, name, filepath.Join(at.path, name))
		if at != &d.node {
			at.close()
		}
		if err != nil {
			return nil, err
		}
		at = next
	}
	return at, nil
}

// lookUp returns what has the name in a directory, unless it is a link.
func lookUp(dir int, name, path string) (*node, error) {
	fd, err := retry(func() (int, error) { return unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	n, err := newNode(fd, path)
	if err == nil && n.kind() == unix.S_IFLNK {
		n.close()
		return nil, fmt.Errorf("%w: %s is a link, and links in an allocation's directory are not followed here", ErrKind, n.path)
	}
	return n, err
}

func newNode(fd int, path string) (*node, error) {
	n := &node{fd: fd, path: path}
	if err := unix.Fstat(fd, &n.stat); err != nil {
		n.close()
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return n, nil
}

func asDir(n *node, err error) (*Dir, error) {
	if err != nil {
		return nil, err
	}
	if n.kind() != unix.S_IFDIR {
		n.close()
		return nil, n.refuse("a directory")
	}
	return &Dir{*n}, nil
}

func (n *node) kind() uint32 { return n.stat.Mode & unix.S_IFMT }

func (n *node) close() { _ = unix.Close(n.fd) }

// byNumber is a path by which the kernel finds the very file, whatever has its name now.
func (n *node) byNumber() string { return fmt.Sprintf("/proc/self/fd/%d", n.fd) }

// reopen opens the file for use. It does not wait, for a reader of a FIFO or for the holder of a lease on a file.
func (n *node) reopen(flags int) (*os.File, error) {
	fd, err := retry(func() (int, error) {
		return unix.Open(n.byNumber(), flags|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: n.path, Err: err}
	}
	return os.NewFile(uintptr(fd), n.path), nil
}

// refuse says what the file is.
func (n *node) refuse(want string) error {
	kinds := map[uint32]string{
		unix.S_IFLNK: "a link", unix.S_IFIFO: "a FIFO", unix.S_IFSOCK: "a socket", unix.S_IFDIR: "a directory",
		unix.S_IFBLK: "a block device", unix.S_IFCHR: "a character device", unix.S_IFREG: "a regular file",
	}
	return fmt.Errorf("%w: %s is %s, want %s", ErrKind, n.path, kinds[n.kind()], want)
}

func retry(call func() (int, error)) (fd int, err error) {
	for {
		if fd, err = call(); !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}
