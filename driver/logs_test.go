// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

// collector reads a pipe as Nomad's log collector does: until its last writer is
// gone, and never again after that. It can be ended and replaced.
type collector struct {
	path string
	mu   sync.Mutex
	text []byte
	quit chan struct{}
	done sync.WaitGroup
}

func collect(t *testing.T, path string) *collector {
	t.Helper()
	c := &collector{path: path, quit: make(chan struct{})}
	c.done.Go(func() {
		file, err := os.Open(path) // waits for a writer
		if err != nil {
			return
		}
		defer file.Close()
		go func() { // a read that waits ends with the file
			<-c.quit
			_ = file.SetReadDeadline(time.Now())
		}()
		_, _ = io.Copy(c, file)
		<-c.quit
	})
	t.Cleanup(c.end)
	return c
}

func (c *collector) Write(data []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text = append(c.text, data...)
	return len(data), nil
}

func (c *collector) end() {
	select {
	case <-c.quit:
		return
	default:
		close(c.quit)
	}
	if writer, err := os.OpenFile(c.path, os.O_RDWR|syscall.O_NONBLOCK, 0); err == nil {
		defer writer.Close() // a collector that still waits for a writer has one now
	}
	c.done.Wait()
}

func (c *collector) got() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.text)
}

func mkfifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	must.NoError(t, syscall.Mkfifo(path, 0o600))
	return path
}

// Output goes to Nomad's collector once, over restarts of the plugin.
func TestLogsOverARestartOfThePlugin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``)
	task.StdoutPath = mkfifo(t)
	logs := collect(t, task.StdoutPath)
	handle, _, err := d.StartTask(task)
	must.NoError(t, err)
	w.engine.say("c1", "one")
	w.engine.say("c1", "two")
	eventually(t, func() bool { return logs.got() == "one\ntwo\n" })
	d.kill()
	w.engine.say("c1", "three")

	d = w.boot()
	must.NoError(t, d.RecoverTask(handle))
	w.engine.say("c1", "four")
	must.NoError(t, d.StopTask(task.ID, time.Second, ""))
	must.NoError(t, d.DestroyTask(task.ID, true))
	eventually(t, func() bool { return logs.got() == "one\ntwo\nthree\nfour\n" })
}

// A collector that restarts loses nothing, and one that is late holds nothing up.
func TestLogsOverARestartOfTheCollector(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``)
	task.StdoutPath = mkfifo(t)
	_, _, err := d.StartTask(task)
	must.NoError(t, err, must.Sprint("no collector yet"))
	w.engine.say("c1", "one")
	first := collect(t, task.StdoutPath)
	eventually(t, func() bool { return first.got() == "one\n" })
	first.end()
	w.engine.say("c1", "two")
	second := collect(t, task.StdoutPath)
	eventually(t, func() bool { return second.got() == "two\n" })
}

func TestLogsOfAnUnreadableLogDriver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	w.engine.unreadable = true
	task := w.task(``)
	task.StdoutPath = mkfifo(t)
	collect(t, task.StdoutPath)
	_, _, err := d.StartTask(task)
	must.NoError(t, err)
	eventually(t, func() bool { return d.told("No logs: the task's log driver cannot be read back") })
}
