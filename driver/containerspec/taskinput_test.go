// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
	"golang.org/x/sys/unix"

	"nomad-gpu-mem/driver/taskfile"
)

// inputs are what a task can put in the place of a file that a job names, with the error that tells so.
var inputs = map[string]struct {
	make func(path string) error
	want error
}{
	"FIFO":    {func(path string) error { return unix.Mkfifo(path, 0o666) }, taskfile.ErrKind},
	"zeros":   {func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))) }, taskfile.ErrKind},
	"disk":    {func(path string) error { return unix.Mknod(path, unix.S_IFBLK|0o666, int(unix.Mkdev(240, 77))) }, taskfile.ErrKind},
	"link":    {func(path string) error { return os.Symlink("/etc/hostname", path) }, taskfile.ErrKind},
	"folder":  {func(path string) error { return os.Mkdir(path, 0o755) }, taskfile.ErrKind},
	"nothing": {func(string) error { return nil }, fs.ErrNotExist},
}

// A seccomp profile is a file of a bounded size, whatever a task has put in its place.
func TestSeccompProfileIsAFile(t *testing.T) {
	t.Parallel()
	for name, input := range inputs {
		in := newInput(t, `security_opt = ["seccomp=local/p.json"]`, ``)
		must.NoError(t, input.make(filepath.Join(in.Task.TaskDir().LocalDir, "p.json")))
		_, _, err := in.Build()
		must.ErrorIs(t, err, input.want, must.Sprint(name))
	}
	for size, want := range map[int]error{mostOfProfile: nil, mostOfProfile + 1: taskfile.ErrSize} {
		in := newInput(t, `security_opt = ["seccomp=local/p.json"]`, ``)
		text := `{"a":"` + strings.Repeat("x", size-8) + `"}`
		must.NoError(t, os.WriteFile(filepath.Join(in.Task.TaskDir().LocalDir, "p.json"), []byte(text), 0o600))
		_, _, err := in.Build()
		must.ErrorIs(t, err, want)
	}
	for _, anywhere := range []string{`seccomp=/dev/zero`, `seccomp=/dev`} {
		in := newInput(t, `security_opt = ["`+anywhere+`"]`, `volumes { enabled = true }`)
		_, _, err := in.Build()
		must.ErrorIs(t, err, taskfile.ErrKind, must.Sprint(anywhere))
	}
}

// An image archive is a file in the task's local directory, and no longer than it was when it was opened.
func TestArchiveIsAFile(t *testing.T) {
	t.Parallel()
	for name, input := range inputs {
		task := newInput(t, ``, ``).Task
		must.NoError(t, input.make(filepath.Join(task.TaskDir().LocalDir, "a.tar")))
		_, err := OpenArchive(task, "a.tar")
		must.ErrorIs(t, err, input.want, must.Sprint(name))
	}
	task := newInput(t, ``, ``).Task
	for _, name := range []string{"../secrets/a.tar", "/etc/hostname", "x/../../a.tar", ""} {
		_, err := OpenArchive(task, name)
		must.ErrorContains(t, err, "config.load", must.Sprint(name))
	}
	path := filepath.Join(task.TaskDir().LocalDir, "a.tar")
	must.NoError(t, os.WriteFile(path, []byte("image"), 0o600))
	archive, err := OpenArchive(task, "./a.tar")
	must.NoError(t, err)
	defer archive.Close()
	must.NoError(t, os.WriteFile(path, []byte("image and more"), 0o600))
	text, err := io.ReadAll(archive)
	must.NoError(t, err)
	must.Eq(t, "image", string(text))
}
