package driver

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/driver/docker"
)

// collector reads a pipe as Nomad's log collector does. It can be ended and replaced.
type collector struct {
	mu   sync.Mutex
	text []byte
	file *os.File
	done sync.WaitGroup
}

func collect(t *testing.T, path string) *collector {
	t.Helper()
	// Opened for both, a pipe needs no writer to be opened.
	file, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	must.NoError(t, err)
	c := &collector{file: file}
	c.done.Go(func() {
		buffer := make([]byte, 1024)
		for {
			n, err := file.Read(buffer)
			c.mu.Lock()
			c.text = append(c.text, buffer[:n]...)
			c.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(c.end)
	return c
}

func (c *collector) end() {
	_ = c.file.Close()
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
	_, _, err := d.StartTask(task)
	must.NoError(t, err)
	eventually(t, func() bool { return d.told("No logs: the task's log driver cannot be read back") })
}

func TestFifoGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	f := &fifo{path: mkfifo(t), retry: time.Millisecond}
	defer f.close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	must.ErrorIs(t, f.write(ctx, []byte("nobody reads")), context.DeadlineExceeded)

	// A pipe that is full waits for its reader, and gives up as well.
	reader, err := os.OpenFile(f.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	must.NoError(t, err)
	defer reader.Close()
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	must.ErrorIs(t, f.write(ctx, make([]byte, 1<<20)), context.DeadlineExceeded)
}

func TestFifoWritesMoreThanAPipeHolds(t *testing.T) {
	t.Parallel()
	path := mkfifo(t)
	c := collect(t, path)
	f := &fifo{path: path, retry: time.Millisecond}
	defer f.close()
	must.NoError(t, f.write(t.Context(), make([]byte, 1<<20)))
	eventually(t, func() bool { return len(c.got()) == 1<<20 })
}

func TestCheckpoint(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := checkpoint{dir: dir, container: "c1"}
	position, err := c.load()
	must.NoError(t, err)
	must.Eq(t, docker.LogPosition{}, position)

	want := docker.LogPosition{Stdout: docker.LogMark{Time: time.Unix(5, 7).UTC(), Count: 2}}
	must.NoError(t, c.save(want))
	position, err = c.load()
	must.NoError(t, err)
	must.Eq(t, want, position)

	position, err = checkpoint{dir: dir, container: "c2"}.load()
	must.NoError(t, err)
	must.Eq(t, docker.LogPosition{}, position, must.Sprint("another container begins anew"))
}

// A task may plant a link where the file is to be: it must not be followed.
func TestCheckpointFollowsNoLinkOutOfTheTaskDirectory(t *testing.T) {
	t.Parallel()
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "victim")
	must.NoError(t, os.WriteFile(outside, []byte("keep"), 0o600))
	must.NoError(t, os.Symlink(outside, filepath.Join(dir, checkpointFile+".new")))
	must.Error(t, checkpoint{dir: dir, container: "c"}.save(docker.LogPosition{}))
	file, err := os.Open(outside)
	must.NoError(t, err)
	defer file.Close()
	text, err := io.ReadAll(file)
	must.NoError(t, err)
	must.Eq(t, "keep", string(text))
}
