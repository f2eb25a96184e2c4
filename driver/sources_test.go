// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/shoenig/test/must"
)

// What a job mounts takes room in the host's own table of mounts: each source once, and
// not without end.
func TestStagedSourcesAreBounded(t *testing.T) {
	t.Parallel()
	volumes := func(n, sources int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"data/%d:/m/%d"`, i%sources, i))
		}
		return "volumes = [" + strings.Join(all, ", ") + "]"
	}
	for _, c := range []struct {
		hcl      string
		accepted bool
	}{
		{volumes(2*mostStaged, mostStaged/2), true},
		{volumes(mostStaged, mostStaged), false}, // and the shared directory, which every task has
	} {
		w := newWorld(t)
		d := w.boot()
		_, _, err := d.StartTask(w.task(c.hcl))
		if c.accepted {
			must.NoError(t, err)
			continue
		}
		must.ErrorContains(t, err, "mount directories above them")
		w.nothingLeft()
	}
}

// notedMounts makes none, and notes what is asked of it.
type notedMounts struct {
	noMounts
	mu       sync.Mutex
	readOnly int
	covered  []string
}

func (m *notedMounts) ReadOnly(string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.readOnly++
	return nil
}

func (m *notedMounts) Cover(_, _, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.covered = append(m.covered, name)
	return nil
}

// What tasks share is read-only but for the directories in it other than the logs. What is
// staged for a start ends once the container runs, and with a start that fails.
func TestStagedSourcesOfAStart(t *testing.T) {
	t.Parallel()
	for _, failure := range []error{nil, errors.New("no container")} {
		mounts := &notedMounts{}
		w := newWorld(t)
		w.mounts = mounts
		if failure != nil {
			w.engine.fail("Create", failure)
		}
		d := w.boot()
		task := w.task(``)
		must.NoError(t, os.MkdirAll(filepath.Join(task.TaskDir().SharedAllocDir, "data"), 0o755))
		_, _, err := d.StartTask(task)
		must.Eq(t, failure != nil, err != nil)
		must.Eq(t, []string{"logs", "data"}, mounts.covered)
		must.Eq(t, 2, mounts.readOnly) // the logs and the whole
		left, err := os.ReadDir(filepath.Join(w.stateDir, "staging", "attempts"))
		must.NoError(t, err)
		must.SliceEmpty(t, left)
	}
}
