// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package logpipe

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/driver/logpipe/logpipetest"
)

func openReader(t *testing.T, path string) *os.File {
	t.Helper()
	reader, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	must.NoError(t, err)
	t.Cleanup(func() { _ = reader.Close() })
	return reader
}

// A pipe that is full waits for its reader, and gives up with its context.
func TestFifoGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	f := &Pipe{Path: logpipetest.Mkfifo(t)}
	must.ErrorIs(t, f.Open(), syscall.ENXIO, must.Sprint("no process reads"))
	openReader(t, f.Path)
	must.NoError(t, f.Open())
	defer f.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	must.ErrorIs(t, f.Write(ctx, make([]byte, 1<<20)), os.ErrDeadlineExceeded)
}

func TestFifoWritesMoreThanAPipeHolds(t *testing.T) {
	t.Parallel()
	path := logpipetest.Mkfifo(t)
	c := logpipetest.Collect(t, path)
	f := &Pipe{Path: path}
	eventually(t, func() bool { return f.Open() == nil })
	defer f.Close()
	must.NoError(t, f.Write(t.Context(), make([]byte, 1<<20)))
	eventually(t, func() bool { return len(c.Got()) == 1<<20 })
}

// A reader may die with output in the pipe that it has not read, and amid a line. The
// next reader gets the rest, and nothing twice.
func TestFifoOverTheDeathOfItsReader(t *testing.T) {
	t.Parallel()
	path := logpipetest.Mkfifo(t)
	var data []byte
	for i := range 1 << 18 {
		data = append(data, byte(i>>8), byte(i))
	}
	first := openReader(t, path)
	f := &Pipe{Path: path}
	must.NoError(t, f.Open())
	defer f.Close()
	failed := make(chan error, 1)
	go func() { failed <- f.Write(t.Context(), data) }()
	head := make([]byte, 100_001)
	_, err := io.ReadFull(first, head)
	must.NoError(t, err)
	must.NoError(t, first.Close())
	must.ErrorIs(t, <-failed, syscall.EPIPE)
	must.ErrorIs(t, f.Open(), syscall.ENXIO, must.Sprint("no new reader yet"))

	second := openReader(t, path)
	must.NoError(t, f.Open())
	wrote := make(chan error, 1)
	go func() { // again from the beginning, in other pieces
		for piece := range slices.Chunk(data, 3001) {
			if err := f.Write(t.Context(), piece); err != nil {
				wrote <- err
				return
			}
		}
		f.Close()
		wrote <- nil
	}()
	tail, err := io.ReadAll(second)
	must.NoError(t, err)
	must.NoError(t, <-wrote)
	must.True(t, bytes.Equal(data, append(head, tail...)))
}

// A task that can write to the directory of its pipes may put something else there.
func TestFifoWritesToPipesOnly(t *testing.T) {
	t.Parallel()
	dir, outside := t.TempDir(), t.TempDir()
	victim := filepath.Join(outside, "file")
	must.NoError(t, os.WriteFile(victim, []byte("keep"), 0o600))
	pipe := filepath.Join(outside, "pipe")
	must.NoError(t, syscall.Mkfifo(pipe, 0o600))
	openReader(t, pipe)
	must.NoError(t, os.WriteFile(filepath.Join(dir, "plain"), nil, 0o600))
	must.NoError(t, os.Symlink(victim, filepath.Join(dir, "link-to-file")))
	must.NoError(t, os.Symlink(pipe, filepath.Join(dir, "link-to-pipe")))
	for _, name := range []string{"plain", "link-to-file", "link-to-pipe", "missing"} {
		f := &Pipe{Path: filepath.Join(dir, name), Dir: dir}
		must.Error(t, f.Open(), must.Sprint(name))
		must.Nil(t, f.file)
	}
	null := &Pipe{Path: os.DevNull, Dir: dir}
	must.NoError(t, null.Open())
	null.Close()
}
