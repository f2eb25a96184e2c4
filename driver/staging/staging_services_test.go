// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package staging

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
	"golang.org/x/sys/unix"

	"nomad-gpu-mem/driver/taskfile"
)

// node is a state_dir and an allocation's directory with a directory, a file and a socket in it.
type node struct {
	*Area
	state, alloc string
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{state: t.TempDir(), alloc: t.TempDir()}
	n.Area = New(n.state, Kernel{})
	t.Cleanup(func() {
		must.NoError(t, n.Sweep(func() ([]string, error) { return nil, nil }))
		must.NoError(t, unix.Unmount(n.dir, unix.MNT_DETACH))
	})
	must.NoError(t, os.MkdirAll(filepath.Join(n.alloc, "local", "d"), 0o755))
	must.NoError(t, os.WriteFile(filepath.Join(n.alloc, "local", "d", "name"), []byte("own"), 0o600))
	listener, err := net.Listen("unix", filepath.Join(n.alloc, "local", "s"))
	must.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return n
}

func (n *node) stage(t *testing.T, attempt string, number int, path string) string {
	t.Helper()
	dir, err := taskfile.OpenDir(n.alloc)
	must.NoError(t, err)
	defer dir.Close()
	held, err := dir.Hold(path)
	must.NoError(t, err)
	defer held.Close()
	staged, err := n.Stage(attempt, number, held)
	must.NoError(t, err)
	return staged
}

// shared makes the allocation's directory a mount that all copies of it share, as on most machines.
func (n *node) shared(t *testing.T) {
	t.Helper()
	must.NoError(t, Kernel{}.Tmpfs(n.alloc))
	t.Cleanup(func() { must.NoError(t, unix.Unmount(n.alloc, unix.MNT_DETACH)) })
	must.NoError(t, unix.Mount("", n.alloc, "", unix.MS_SHARED, ""))
}

// Contains reports whether a path is below the area.
func (n *node) Contains(path string) bool { return strings.HasPrefix(path, n.dir+"/") }

// mounts are the mounts below a directory.
func (n *node) mountsBelow(t *testing.T) (below []string) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	must.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if target := strings.Fields(line)[4]; strings.HasPrefix(target, n.dir+"/") {
			below = append(below, target)
		}
	}
	return below
}

// What was staged is what had the name then, whatever has it now.
func TestStagedSourcesStayThemselves(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for number, path := range []string{"local/d", "local/d/name", "local/s"} {
		name := filepath.Join(n.alloc, path)
		before, err := os.Stat(name)
		must.NoError(t, err)
		staged := n.stage(t, "a/task/1", number, path)
		must.True(t, n.Contains(staged))
		must.NoError(t, os.Rename(name, name+".old"))
		must.NoError(t, os.Symlink("/etc", name))
		now, err := os.Lstat(staged)
		must.NoError(t, err)
		must.True(t, os.SameFile(before, now), must.Sprint(path))
		must.NoError(t, os.Remove(name))
		must.NoError(t, os.Rename(name+".old", name))
	}
	must.False(t, n.Contains(n.alloc))
	must.SliceLen(t, 3, n.mountsBelow(t))
}

// A call that is repeated mounts in the place of the first, and removing removes mounts
// only: what a container has mounted, and the files themselves, stay.
func TestStagedSourcesEnd(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	staged := n.stage(t, "a/task/1", 1, "local/d")
	must.Eq(t, staged, n.stage(t, "a/task/1", 1, "local/d/name"))
	must.SliceLen(t, 1, n.mountsBelow(t))
	open, err := os.Open(n.stage(t, "a/task/1", 2, "local/d"))
	must.NoError(t, err)
	defer open.Close()
	n.stage(t, "a/task/2", 1, "local/d")

	must.NoError(t, n.Remove("a/task/1"))
	must.NoError(t, n.Remove("a/task/1"))
	must.SliceLen(t, 1, n.mountsBelow(t))
	names, err := open.Readdirnames(-1)
	must.NoError(t, err)
	must.Eq(t, []string{"name"}, names)

	failed := errors.New("one cannot be read")
	must.NoError(t, n.Sweep(func() ([]string, error) { return nil, failed }))
	must.NoError(t, n.Sweep(func() ([]string, error) { return []string{"a/task/2"}, nil }))
	must.SliceLen(t, 1, n.mountsBelow(t))
	must.NoError(t, n.Sweep(func() ([]string, error) { return nil, nil }))
	must.SliceEmpty(t, n.mountsBelow(t))
	must.FileExists(t, filepath.Join(n.alloc, "local", "d", "name"))
}

// What is mounted for an attempt that begins while the sweep reads the journal stays.
func TestStagedSourcesDuringASweep(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.stage(t, "a/task/1", 1, "local/d")
	must.NoError(t, n.Sweep(func() ([]string, error) {
		n.stage(t, "a/task/2", 1, "local/d")
		return nil, nil
	}))
	must.SliceLen(t, 1, n.mountsBelow(t))
}

// All mounts at a place end, and none that a link in this place leads to.
func TestUnmount(t *testing.T) {
	t.Parallel()
	dir, mounts := t.TempDir(), Kernel{}
	must.NoError(t, mounts.Tmpfs(dir))
	must.NoError(t, mounts.Tmpfs(dir))
	link := filepath.Join(t.TempDir(), "link")
	must.NoError(t, os.Symlink(dir, link))
	must.NoError(t, mounts.Unmount(link))
	mounted, err := mounts.IsMount(dir)
	must.NoError(t, err)
	must.True(t, mounted)
	must.NoError(t, mounts.Unmount(dir))
	mounted, err = mounts.IsMount(dir)
	must.NoError(t, err)
	must.False(t, mounted)
}

// The next process of the plugin takes the file system that the first one mounted, and
// one that does not see it finds no directory to mount in its place.
func TestStagingOverRestarts(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	first := n.stage(t, "a/task/1", 1, "local/d")
	n.Area = New(n.state, Kernel{})
	second := n.stage(t, "a/task/1", 2, "local/d")
	must.Eq(t, filepath.Dir(first), filepath.Dir(second))
	must.SliceLen(t, 2, n.mountsBelow(t))

	must.NoError(t, n.Remove("a/task/1"))
	must.NoError(t, unix.Unmount(n.dir, 0)) // as after a reboot
	_, err := os.Stat(first)
	must.ErrorIs(t, err, unix.ENOTDIR)
	must.NoError(t, n.Remove("a/task/1"))
	must.NoError(t, n.Sweep(func() ([]string, error) { return nil, nil }))
	n.stage(t, "a/task/1", 1, "local/d")
}

// What the client has mounted in the allocation's directory stays when a mount ends that
// has it, too: on most machines, unmounting one of them unmounts the other.
func TestStagedSourcesLeaveOtherMountsAlone(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.shared(t)
	secrets := filepath.Join(n.alloc, "app", "secrets")
	must.NoError(t, os.MkdirAll(secrets, 0o755))
	must.NoError(t, Kernel{}.Tmpfs(secrets))
	must.NoError(t, os.WriteFile(filepath.Join(secrets, "token"), nil, 0o600))

	staged := n.stage(t, "a/task/1", 1, "app")
	must.FileExists(t, filepath.Join(staged, "secrets", "token"))
	must.NoError(t, n.Remove("a/task/1"))
	must.SliceEmpty(t, n.mountsBelow(t))
	must.FileExists(t, filepath.Join(secrets, "token"))
}

// With covers, what is staged is read-only in all that is mounted from there, but for the
// covers that are writable, and stays as it is where the client has it.
func TestStagedSourcesWithACover(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.shared(t)
	must.NoError(t, os.MkdirAll(filepath.Join(n.alloc, "alloc", "logs"), 0o777))
	must.NoError(t, os.MkdirAll(filepath.Join(n.alloc, "alloc", "data"), 0o777))
	dir, err := taskfile.OpenDir(n.alloc)
	must.NoError(t, err)
	defer dir.Close()
	shared, err := dir.Hold("alloc")
	must.NoError(t, err)
	defer shared.Close()
	logs, err := dir.Hold("alloc/logs")
	must.NoError(t, err)
	defer logs.Close()
	data, err := dir.Hold("alloc/data")
	must.NoError(t, err)
	defer data.Close()

	for range 2 { // a repeated call too
		staged, err := n.Stage("a/task/1", 1, shared, Cover{Name: "logs", Held: logs}, Cover{Name: "data", Held: data, Writable: true})
		must.NoError(t, err)
		must.Eq(t, []string{staged, filepath.Join(staged, "logs"), filepath.Join(staged, "data")}, n.mountsBelow(t))
		copied := t.TempDir()
		must.NoError(t, Kernel{}.Bind(staged, copied))
		must.NoError(t, os.WriteFile(filepath.Join(copied, "data", "new"), nil, 0o600))
		must.ErrorIs(t, os.WriteFile(filepath.Join(copied, "new"), nil, 0o600), unix.EROFS)
		must.ErrorIs(t, os.WriteFile(filepath.Join(copied, "logs", "new"), nil, 0o600), unix.EROFS)
		must.NoError(t, Kernel{}.Unmount(filepath.Join(copied, "logs"))) // as in another mount namespace
		must.ErrorIs(t, os.Rename(filepath.Join(copied, "logs"), filepath.Join(copied, "moved")), unix.EROFS)
		must.NoError(t, os.WriteFile(filepath.Join(n.alloc, "alloc", "logs", "line"), nil, 0o600))
		must.FileExists(t, filepath.Join(copied, "logs", "line"))
		must.NoError(t, Kernel{}.Unmount(copied))
	}
	must.NoError(t, n.Remove("a/task/1"))
	must.SliceEmpty(t, n.mountsBelow(t))
	must.NoError(t, os.WriteFile(filepath.Join(n.alloc, "alloc", "logs", "line"), nil, 0o600))

	must.NoError(t, os.Rename(filepath.Join(n.alloc, "alloc", "logs"), filepath.Join(n.alloc, "alloc", "moved")))
	must.NoError(t, os.Symlink("/etc", filepath.Join(n.alloc, "alloc", "logs")))
	_, err = n.Stage("a/task/1", 1, shared, Cover{Name: "logs", Held: logs})
	must.ErrorIs(t, err, taskfile.ErrKind)
}
