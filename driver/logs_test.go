// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/shoenig/test/must"
	"golang.org/x/sys/unix"

	"nomad-gpu-mem/driver/logpipe/logpipetest"
)

// Output goes to Nomad's collector once, over restarts of the plugin.
func TestLogsOverARestartOfThePlugin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``)
	task.StdoutPath = logpipetest.Mkfifo(t)
	logs := logpipetest.Collect(t, task.StdoutPath)
	handle, _, err := d.StartTask(task)
	must.NoError(t, err)
	w.engine.say("c1", "one")
	w.engine.say("c1", "two")
	eventually(t, func() bool { return logs.Got() == "one\ntwo\n" })
	d.kill()
	w.engine.say("c1", "three")

	d = w.boot()
	must.NoError(t, d.RecoverTask(handle))
	w.engine.say("c1", "four")
	must.NoError(t, d.StopTask(task.ID, time.Second, ""))
	must.NoError(t, d.DestroyTask(task.ID, true))
	eventually(t, func() bool { return logs.Got() == "one\ntwo\nthree\nfour\n" })
}

// A collector that restarts loses nothing, and one that is late holds nothing up.
func TestLogsOverARestartOfTheCollector(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``)
	task.StdoutPath = logpipetest.Mkfifo(t)
	_, _, err := d.StartTask(task)
	must.NoError(t, err, must.Sprint("no collector yet"))
	w.engine.say("c1", "one")
	first := logpipetest.Collect(t, task.StdoutPath)
	eventually(t, func() bool { return first.Got() == "one\n" })
	first.End()
	w.engine.say("c1", "two")
	second := logpipetest.Collect(t, task.StdoutPath)
	eventually(t, func() bool { return second.Got() == "two\n" })
}

func TestLogsOfAnUnreadableLogDriver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	w.engine.unreadable = true
	task := w.task(``)
	task.StdoutPath = logpipetest.Mkfifo(t)
	logpipetest.Collect(t, task.StdoutPath)
	_, _, err := d.StartTask(task)
	must.NoError(t, err)
	eventually(t, func() bool { return d.reported("No logs: the task's log driver cannot be read back") })
}

// Nothing is opened or made in the task's directory for its logs, whatever the task has put where checkpoints once
// were, and nothing is left in state_dir when the task has ended.
func TestLogsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``)
	task.StdoutPath = logpipetest.Mkfifo(t)
	logs := logpipetest.Collect(t, task.StdoutPath)
	old := filepath.Join(task.TaskDir().Dir, ".gpu-docker-logs.json")
	must.NoError(t, unix.Mkfifo(old, 0o600)) // to open it would wait for ever
	_, _, err := d.StartTask(task)
	must.NoError(t, err)
	w.engine.say("c1", "one")
	eventually(t, func() bool { return logs.Got() == "one\n" && len(files(t, filepath.Join(w.stateDir, "logs"))) == 1 })
	must.Eq(t, []string{".gpu-docker-logs.json", "local"}, files(t, task.TaskDir().Dir))
	must.NoError(t, d.StopTask(task.ID, time.Second, ""))
	must.NoError(t, d.DestroyTask(task.ID, true))
	must.SliceEmpty(t, files(t, filepath.Join(w.stateDir, "logs")))
}

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		must.NoError(t, err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}
