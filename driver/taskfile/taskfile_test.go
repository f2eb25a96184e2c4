// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package taskfile

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/shoenig/test/must"
	"golang.org/x/sys/unix"
)

// noDriver is a device number without a driver: to open such a node fails with ENXIO, so any other error shows that it
// was not opened.
var noDriver = int(unix.Mkdev(240, 77))

// alloc is an allocation's directory, and a victim beside it that no operation on it may touch.
type alloc struct {
	path, victim string
}

func newAlloc(t *testing.T) alloc {
	t.Helper()
	base := t.TempDir()
	a := alloc{path: filepath.Join(base, "alloc"), victim: filepath.Join(base, "victim")}
	must.NoError(t, os.MkdirAll(filepath.Join(a.path, "app", "local"), 0o755))
	must.NoError(t, os.Mkdir(a.victim, 0o755))
	must.NoError(t, os.WriteFile(filepath.Join(a.victim, "file"), []byte("keep"), 0o600))
	return a
}

func (a alloc) open(t *testing.T) *Dir {
	t.Helper()
	dir, err := OpenDir(a.path)
	must.NoError(t, err)
	t.Cleanup(dir.Close)
	return dir
}

// untouched asserts that the victim is as it was.
func (a alloc) untouched(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir(a.victim)
	must.NoError(t, err)
	must.Len(t, 1, entries)
	text, err := os.ReadFile(filepath.Join(a.victim, "file"))
	must.NoError(t, err)
	must.Eq(t, "keep", string(text))
}

// planted are things that a task can put in the place of a file, each by what makes it.
func planted(a alloc) map[string]func(path string) error {
	return map[string]func(path string) error{
		"link":          func(path string) error { return os.Symlink(filepath.Join(a.victim, "file"), path) },
		"relative link": func(path string) error { return os.Symlink("../../../victim/file", path) },
		"link to nothing": func(path string) error {
			return os.Symlink(filepath.Join(a.victim, "new"), path)
		},
		"link to a device": func(path string) error { return os.Symlink("/dev/zero", path) },
		"magic link":       func(path string) error { return os.Symlink("/proc/self/root/dev/zero", path) },
		"FIFO":             func(path string) error { return unix.Mkfifo(path, 0o666) },
		"zeros":            func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))) },
		"character device": func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o666, noDriver) },
		"block device":     func(path string) error { return unix.Mknod(path, unix.S_IFBLK|0o666, noDriver) },
		"socket": func(path string) error {
			listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			if err != nil {
				return err
			}
			listener.SetUnlinkOnClose(false)
			return listener.Close()
		},
		"directory": func(path string) error { return os.Mkdir(path, 0o755) },
	}
}

// Whatever a task puts in the place of a file is neither read, nor waited for, nor written through.
func TestNothingButFilesIsOpened(t *testing.T) {
	t.Parallel()
	for name := range planted(alloc{}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAlloc(t)
			dir := a.open(t)
			err := planted(a)[name](filepath.Join(a.path, "app", "local", "x"))
			if errors.Is(err, unix.EPERM) && os.Geteuid() != 0 {
				t.Skip("only root makes devices")
			}
			must.NoError(t, err)
			_, err = dir.ReadFile("app/local/x", 1<<20)
			must.ErrorIs(t, err, ErrKind)
			must.StrContains(t, err.Error(), "app/local/x")
			must.ErrorIs(t, dir.Overwrite("app/local/x", []byte("gone")), ErrKind)
			if name != "FIFO" {
				_, err = dir.Pipe("app/local/x")
				must.ErrorIs(t, err, ErrKind)
			}
			if name == "directory" {
				must.Error(t, dir.Replace("app/local/x", []byte("new"), 0o644))
				return
			}
			must.NoError(t, dir.Replace("app/local/x", []byte("new"), 0o644))
			text, err := dir.ReadFile("app/local/x", 3)
			must.NoError(t, err)
			must.Eq(t, "new", string(text))
			entries, err := os.ReadDir(filepath.Join(a.path, "app", "local"))
			must.NoError(t, err)
			must.Len(t, 1, entries, must.Sprint("a temporary file is left"))
			a.untouched(t)
		})
	}
}

// A link in the place of a directory leads nowhere: of the allocation's own, of a task's, or of one in between.
func TestNoLinkOnTheWay(t *testing.T) {
	t.Parallel()
	for _, replaced := range []string{"", "app", "app/local"} {
		for _, target := range []string{"victim", "nothing"} {
			t.Run(replaced+" "+target, func(t *testing.T) {
				t.Parallel()
				a := newAlloc(t)
				at := filepath.Join(a.path, replaced)
				must.NoError(t, os.Rename(at, at+"-gone"))
				must.NoError(t, os.Symlink(filepath.Join(filepath.Dir(a.victim), target), at))
				below, err := filepath.Rel(replaced, "app/local/file")
				must.NoError(t, err)

				dir, err := OpenDir(a.path)
				if replaced == "" {
					must.ErrorIs(t, err, ErrKind)
					a.untouched(t)
					return
				}
				must.NoError(t, err)
				defer dir.Close()
				path := filepath.Join(replaced, filepath.Base(below))
				_, err = dir.ReadFile(path, 1<<20)
				must.ErrorIs(t, err, ErrKind)
				must.ErrorIs(t, dir.Check(path), ErrKind)
				must.ErrorIs(t, dir.Replace(path, []byte("gone"), 0o644), ErrKind)
				must.ErrorIs(t, dir.Overwrite(path, []byte("gone")), ErrKind)
				_, err = dir.Dir(replaced)
				must.ErrorIs(t, err, ErrKind)
				_, err = dir.Pipe(path)
				must.ErrorIs(t, err, ErrKind)
				a.untouched(t)
			})
		}
	}
}

// A directory that is swapped with a link while the walk is under way leads to the directory or to an error.
func TestSwapDuringTheWalk(t *testing.T) {
	t.Parallel()
	a := newAlloc(t)
	dir := a.open(t)
	local := filepath.Join(a.path, "app", "local")
	link := filepath.Join(a.path, "app", "link")
	must.NoError(t, os.Symlink(a.victim, link))
	must.NoError(t, os.WriteFile(filepath.Join(local, "file"), []byte("mine"), 0o600))
	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, local, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
			}
		}
	})
	read, refused := 0, 0
	for range 3000 {
		text, err := dir.ReadFile("app/local/file", 4)
		if err != nil {
			must.ErrorIs(t, err, ErrKind)
			refused++
			continue
		}
		must.Eq(t, "mine", string(text))
		read++
		err = dir.Replace("app/local/new", []byte("new"), 0o600)
		must.True(t, err == nil || errors.Is(err, ErrKind) || errors.Is(err, fs.ErrNotExist), must.Sprint(err))
	}
	close(stop)
	swapping.Wait()
	t.Logf("%d reads, %d refused", read, refused)
	a.untouched(t)
}

func TestPathsStayBelow(t *testing.T) {
	t.Parallel()
	a := newAlloc(t)
	dir := a.open(t)
	for _, path := range []string{"../victim/file", "app/../../victim/file", filepath.Join(a.victim, "file"), ""} {
		_, err := dir.Open(path)
		must.ErrorIs(t, err, fs.ErrInvalid, must.Sprint(path))
		must.Error(t, dir.Replace(path, []byte("gone"), 0o600), must.Sprint(path))
	}
	a.untouched(t)
	_, err := dir.Open("app/missing")
	must.ErrorIs(t, err, fs.ErrNotExist)
	_, err = dir.Open("app/missing/x")
	must.ErrorIs(t, err, fs.ErrNotExist)
	must.NoError(t, dir.Check("app/missing/x"))
	_, err = dir.Dir("app/local/../local")
	must.NoError(t, err)
}

// The agent's own directories may have links, as where /opt/nomad leads to a larger disk.
func TestLinksAboveTheAllocation(t *testing.T) {
	t.Parallel()
	a := newAlloc(t)
	above := filepath.Join(t.TempDir(), "nomad")
	must.NoError(t, os.Symlink(filepath.Dir(a.path), above))
	dir, err := OpenDir(filepath.Join(above, "alloc") + "/")
	must.NoError(t, err)
	dir.Close()
}

func TestSizes(t *testing.T) {
	t.Parallel()
	a := newAlloc(t)
	dir := a.open(t)
	path := filepath.Join(a.path, "app", "big")
	must.NoError(t, os.WriteFile(path, []byte("12345"), 0o600))
	_, err := dir.ReadFile("app/big", 4)
	must.ErrorIs(t, err, ErrSize)
	text, err := dir.ReadFile("app/big", 5)
	must.NoError(t, err)
	must.Eq(t, "12345", string(text))

	must.NoError(t, os.Truncate(path, 1<<40)) // sparse
	_, err = dir.ReadFile("app/big", 1<<20)
	must.ErrorIs(t, err, ErrSize)
	_, err = ReadHost(path, 1<<20)
	must.ErrorIs(t, err, ErrSize)
}

// A reader ends where the file ended when it was opened.
func TestAppendingKeepsNoReaderBusy(t *testing.T) {
	t.Parallel()
	a := newAlloc(t)
	path := filepath.Join(a.path, "app", "archive")
	must.NoError(t, os.WriteFile(path, []byte("begin"), 0o600))
	file, err := a.open(t).Open("app/archive")
	must.NoError(t, err)
	defer file.Close()
	must.NoError(t, os.WriteFile(path, []byte("begin and more"), 0o600))
	text, err := io.ReadAll(file)
	must.NoError(t, err)
	must.Eq(t, "begin", string(text))
}

// A file with a second name is read, but not written to; it is replaced by one of its own.
func TestHardLinks(t *testing.T) {
	t.Parallel()
	a := newAlloc(t)
	dir := a.open(t)
	must.NoError(t, os.Link(filepath.Join(a.victim, "file"), filepath.Join(a.path, "hosts")))
	must.ErrorIs(t, dir.Overwrite("hosts", []byte("gone")), ErrKind)
	must.NoError(t, dir.Replace("hosts", []byte("mine"), 0o644))
	must.NoError(t, dir.Overwrite("hosts", []byte("own")))
	text, err := dir.ReadFile("hosts", 100)
	must.NoError(t, err)
	must.Eq(t, "own", string(text))
	a.untouched(t)
}

// Files stay themselves when they are overwritten, and get the mode that they are to have.
func TestOverwriteKeepsTheFile(t *testing.T) {
	t.Parallel()
	a := newAlloc(t)
	dir := a.open(t)
	must.NoError(t, dir.Replace("hosts", []byte("a long text"), 0o644))
	before, err := os.Stat(filepath.Join(a.path, "hosts"))
	must.NoError(t, err)
	must.Eq(t, fs.FileMode(0o644), before.Mode())
	must.NoError(t, dir.Overwrite("hosts", []byte("short")))
	after, err := os.Stat(filepath.Join(a.path, "hosts"))
	must.NoError(t, err)
	must.True(t, os.SameFile(before, after))
	must.Eq(t, 5, after.Size())
}

// A task can hold a lease on its file, which makes an ordinary open wait for up to 45 s.
func TestLeasesAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	a := newAlloc(t)
	path := filepath.Join(a.path, "app", "leased")
	must.NoError(t, os.WriteFile(path, nil, 0o600))
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	must.NoError(t, err)
	defer file.Close()
	if _, err := unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skipf("no leases on this file system: %v", err)
	}
	_, err = a.open(t).Open("app/leased")
	must.ErrorIs(t, err, syscall.EWOULDBLOCK)
}

func TestPipe(t *testing.T) {
	t.Parallel()
	a := newAlloc(t)
	dir := a.open(t)
	path := filepath.Join(a.path, "app", "pipe")
	must.NoError(t, unix.Mkfifo(path, 0o600))
	_, err := dir.Pipe("app/pipe")
	must.ErrorIs(t, err, syscall.ENXIO, must.Sprint("no reader"))
	reader, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	must.NoError(t, err)
	defer reader.Close()
	writer, err := dir.Pipe("app/pipe")
	must.NoError(t, err)
	_, err = writer.WriteString("text")
	must.NoError(t, err)
	must.NoError(t, writer.Close())
	text, err := io.ReadAll(reader)
	must.NoError(t, err)
	must.Eq(t, "text", string(text))
	must.NoError(t, os.WriteFile(filepath.Join(a.path, "app", "plain"), nil, 0o600))
	_, err = dir.Pipe("app/plain")
	must.ErrorIs(t, err, ErrKind)
}

// A mount's source may lead through links, but not out of the allocation.
func TestContains(t *testing.T) {
	t.Parallel()
	a := newAlloc(t)
	local := filepath.Join(a.path, "app", "local")
	for name, target := range map[string]string{
		"inside": "../../app", "outside": a.victim, "climbing": "../../../victim", "dangling": "missing", "loop": "loop",
	} {
		must.NoError(t, os.Symlink(target, filepath.Join(local, name)))
	}
	dir := a.open(t)
	for path, ok := range map[string]bool{
		".": true, "app/local": true, "app/new/deep": true, "app/local/inside": true, "app/local/inside/local": true,
		"app/local/outside": false, "app/local/outside/new": false, "app/local/climbing": false, "app/local/dangling": false,
		"app/local/loop": false, "app/local/inside/new": true,
	} {
		must.Eq(t, ok, dir.Contains(path) == nil, must.Sprint(path))
	}
}

// Of the host's files, links are followed; anything but a regular file is refused all the same.
func TestReadHost(t *testing.T) {
	t.Parallel()
	a := newAlloc(t)
	link := filepath.Join(a.path, "link")
	must.NoError(t, os.Symlink(filepath.Join(a.victim, "file"), link))
	text, err := ReadHost(link, 100)
	must.NoError(t, err)
	must.Eq(t, "keep", string(text))
	fifo := filepath.Join(a.path, "fifo")
	must.NoError(t, unix.Mkfifo(fifo, 0o600))
	for _, path := range []string{fifo, "/dev/zero", a.path} {
		_, err := ReadHost(path, 100)
		must.ErrorIs(t, err, ErrKind, must.Sprint(path))
	}
}

// No call leaves a file open, whether it succeeds or not.
func TestNoDescriptorIsLeaked(t *testing.T) {
	a := newAlloc(t) // not parallel: it counts the process's descriptors
	must.NoError(t, unix.Mkfifo(filepath.Join(a.path, "fifo"), 0o600))
	must.NoError(t, os.Symlink(a.victim, filepath.Join(a.path, "link")))
	use := func() {
		dir, err := OpenDir(a.path)
		must.NoError(t, err)
		defer dir.Close()
		for _, path := range []string{"fifo", "link", "link/file", "missing", "app", "app/local/x"} {
			_, _ = dir.ReadFile(path, 100)
			_, _ = dir.Pipe(path)
			_ = dir.Check(path)
			_ = dir.Contains(path)
			_, _ = dir.Dirs(path)
			_ = dir.Overwrite(path, []byte("x"))
			if sub, err := dir.Dir(path); err == nil {
				sub.Close()
			}
		}
		must.NoError(t, dir.Replace("app/local/x", []byte("x"), 0o600))
		must.Error(t, dir.Replace("app/local", []byte("x"), 0o600))
		_, _ = OpenDir(filepath.Join(a.path, "link"))
		_, _ = ReadHost("/dev/zero", 1)
	}
	use()
	before := descriptors(t)
	for range 50 {
		use()
	}
	must.LessEq(t, before+5, descriptors(t))
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must.NoError(t, err)
	count := 0
	for _, entry := range entries {
		to, _ := os.Readlink("/proc/self/fd/" + entry.Name())
		if strings.HasPrefix(to, os.TempDir()) || strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "/proc") {
			count++
		}
	}
	return count
}

// Directories are listed by their names; links to some are none.
func TestDirs(t *testing.T) {
	t.Parallel()
	a := newAlloc(t)
	dir := a.open(t)
	for _, name := range []string{"b", "a"} {
		must.NoError(t, os.MkdirAll(filepath.Join(a.path, "shared", name), 0o755))
	}
	must.NoError(t, os.WriteFile(filepath.Join(a.path, "shared", "file"), nil, 0o600))
	must.NoError(t, os.Symlink(filepath.Dir(a.victim), filepath.Join(a.path, "shared", "link")))
	names, err := dir.Dirs("shared")
	must.NoError(t, err)
	must.Eq(t, []string{"a", "b"}, names)
	for _, path := range []string{"shared/link", "shared/file", "none", "../" + filepath.Base(a.path)} {
		_, err := dir.Dirs(path)
		must.Error(t, err, must.Sprint(path))
	}
}

// What does not exist yet is made as directories, but never through a link.
func TestHoldOrMake(t *testing.T) {
	t.Parallel()
	a := newAlloc(t)
	dir := a.open(t)
	held, err := dir.HoldOrMake("app/local/x/y")
	must.NoError(t, err)
	defer held.Close()
	must.True(t, held.IsDir())
	must.DirExists(t, filepath.Join(a.path, "app", "local", "x", "y"))
	must.NoError(t, os.WriteFile(filepath.Join(a.path, "app", "local", "file"), nil, 0o600))
	file, err := dir.HoldOrMake("app/local/file")
	must.NoError(t, err)
	defer file.Close()
	must.False(t, file.IsDir())

	must.NoError(t, os.Symlink(a.victim, filepath.Join(a.path, "app", "local", "link")))
	for _, path := range []string{"app/local/link", "app/local/link/new", "app/local/file/new"} {
		_, err := dir.HoldOrMake(path)
		must.Error(t, err, must.Sprint(path))
	}
	_, err = dir.Hold("app/local/none")
	must.ErrorIs(t, err, fs.ErrNotExist)
	a.untouched(t)
}
