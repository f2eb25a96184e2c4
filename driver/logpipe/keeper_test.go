// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package logpipe

import (
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/driver/logpipe/logpipetest"
)

// speak writes into a pipe and closes it, which would end a collector if the pipe
// was not held.
func speak(t *testing.T, h *Keeper, path, text string) {
	t.Helper()
	f := &Pipe{Path: path}
	eventually(t, func() bool { return f.Open() == nil })
	defer f.Close()
	must.NoError(t, h.Hold(path, f.file))
	must.NoError(t, f.Write(t.Context(), []byte(text)))
}

// gone reports whether no process holds pipes any more.
func (k *Keeper) gone() bool {
	return k.tell(releaseMessage, nil) != nil
}

// A held pipe does not end. There is one process for all tasks, and it ends when it
// has released them all.
func TestHolder(t *testing.T) {
	t.Parallel()
	one, two := logpipetest.Mkfifo(t), logpipetest.Mkfifo(t)
	logsOfOne, logsOfTwo := logpipetest.Collect(t, one), logpipetest.Collect(t, two)
	h := NewKeeper(t.TempDir())
	must.NoError(t, h.Release(one), must.Sprint("nothing is held yet"))
	speak(t, h, one, "1\n")
	speak(t, h, two, "2\n")
	h = &Keeper{socket: h.socket} // the plugin's next process
	speak(t, h, one, "3\n")
	eventually(t, func() bool { return logsOfOne.Got() == "1\n3\n" && logsOfTwo.Got() == "2\n" })

	must.NoError(t, h.Release(one))
	must.False(t, h.gone())
	must.NoError(t, h.Release(two))
	eventually(t, h.gone)
	must.NoError(t, h.Release(two))
	logsOfOne.End()
	logsOfOne = logpipetest.Collect(t, one)
	speak(t, h, one, "4\n")
	eventually(t, func() bool { return logsOfOne.Got() == "4\n" })
	must.NoError(t, h.Release(one))
	eventually(t, h.gone)
}

// A pipe without a reader is not worth holding.
func TestHolderEndsWithTheCollectors(t *testing.T) {
	t.Parallel()
	path := logpipetest.Mkfifo(t)
	logs := logpipetest.Collect(t, path)
	h := NewKeeper(t.TempDir())
	speak(t, h, path, "1\n")
	must.False(t, h.gone())
	logs.End()
	eventually(t, h.gone)
}

// Tasks that start at once find one process, or start it once.
func TestHolderOfManyAtOnce(t *testing.T) {
	t.Parallel()
	h := NewKeeper(t.TempDir())
	var starts sync.WaitGroup
	paths := make([]string, 20)
	for n := range paths {
		paths[n] = logpipetest.Mkfifo(t)
		reader, err := os.OpenFile(paths[n], os.O_RDONLY|syscall.O_NONBLOCK, 0)
		must.NoError(t, err)
		defer reader.Close()
		starts.Go(func() { speak(t, h, paths[n], "x") })
	}
	starts.Wait()
	for _, path := range paths {
		must.False(t, h.gone())
		must.NoError(t, h.Release(path))
	}
	eventually(t, h.gone)
}

// Only pipes are held.
func TestHolderOfFiles(t *testing.T) {
	t.Parallel()
	h := NewKeeper(t.TempDir())
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	must.NoError(t, err)
	defer null.Close()
	must.NoError(t, h.Hold("task", null))
	must.True(t, h.gone())
}
