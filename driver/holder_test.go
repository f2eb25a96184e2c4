// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/shoenig/test/must"
)

// speak writes into a pipe and closes it, which would end a collector if the pipe
// was not held.
func speak(t *testing.T, h *holder, path, text string) {
	t.Helper()
	f := &fifo{path: path}
	eventually(t, func() bool { return f.open() == nil })
	defer f.close()
	must.NoError(t, h.hold(path, f.file))
	must.NoError(t, f.write(t.Context(), []byte(text)))
}

// gone reports whether no process holds pipes any more.
func (h *holder) gone() bool {
	return h.tell(releaseMessage, nil) != nil
}

// A held pipe does not end. There is one process for all tasks, and it ends when it
// has released them all.
func TestHolder(t *testing.T) {
	t.Parallel()
	one, two := mkfifo(t), mkfifo(t)
	logsOfOne, logsOfTwo := collect(t, one), collect(t, two)
	h := newHolder(t.TempDir())
	must.NoError(t, h.release(one), must.Sprint("nothing is held yet"))
	speak(t, h, one, "1\n")
	speak(t, h, two, "2\n")
	h = &holder{socket: h.socket} // the plugin's next process
	speak(t, h, one, "3\n")
	eventually(t, func() bool { return logsOfOne.got() == "1\n3\n" && logsOfTwo.got() == "2\n" })

	must.NoError(t, h.release(one))
	must.False(t, h.gone())
	must.NoError(t, h.release(two))
	eventually(t, h.gone)
	must.NoError(t, h.release(two))
	logsOfOne.end()
	logsOfOne = collect(t, one)
	speak(t, h, one, "4\n")
	eventually(t, func() bool { return logsOfOne.got() == "4\n" })
	must.NoError(t, h.release(one))
	eventually(t, h.gone)
}

// A pipe without a reader is not worth holding.
func TestHolderEndsWithTheCollectors(t *testing.T) {
	t.Parallel()
	path := mkfifo(t)
	logs := collect(t, path)
	h := newHolder(t.TempDir())
	speak(t, h, path, "1\n")
	must.False(t, h.gone())
	logs.end()
	eventually(t, h.gone)
}

// Tasks that start at once find one process, or start it once.
func TestHolderOfManyAtOnce(t *testing.T) {
	t.Parallel()
	h := newHolder(t.TempDir())
	var starts sync.WaitGroup
	paths := make([]string, 20)
	for n := range paths {
		paths[n] = mkfifo(t)
		reader, err := os.OpenFile(paths[n], os.O_RDONLY|syscall.O_NONBLOCK, 0)
		must.NoError(t, err)
		defer reader.Close()
		starts.Go(func() { speak(t, h, paths[n], "x") })
	}
	starts.Wait()
	for _, path := range paths {
		must.False(t, h.gone())
		must.NoError(t, h.release(path))
	}
	eventually(t, h.gone)
}

// What is no pipe is not held.
func TestHolderOfFiles(t *testing.T) {
	t.Parallel()
	h := newHolder(t.TempDir())
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	must.NoError(t, err)
	defer null.Close()
	must.NoError(t, h.hold("task", null))
	must.True(t, h.gone())
}
