// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/driver/images"
)

const collecting = "gc {\n image = true\n image_delay = \"0s\"\n}"

// An image goes when its last task is gone, whichever process started that.
func TestUnusedImagesAreRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config, w.settling = collecting, 5*time.Second // a busy machine recovers late
	d := w.boot()
	first, second := w.task(``), w.taskOf("0e4b2d41-0000-4000-8000-000000000002", ``)
	handle, _, err := d.StartTask(first)
	must.NoError(t, err)
	d.kill()
	d = w.boot()
	must.NoError(t, d.RecoverTask(handle))
	_, _, err = d.StartTask(second)
	must.NoError(t, err)
	must.NoError(t, d.DestroyTask(second.ID, true))
	must.True(t, w.engine.hasImage())
	must.NoError(t, d.DestroyTask(first.ID, true))
	eventually(t, func() bool { return !w.engine.hasImage() })
}

// A restart must not keep an image for good: not if its delay was cut short, not if its
// tasks ended meanwhile, and not if it was the recovered task that used it last.
func TestUnusedImagesAreRemovedAfterARestart(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		destroy bool // before the restart
		recover bool // after it
		away    bool // the daemon, while the task is recovered
	}{
		{"within the delay", true, false, false},
		{"task not asked for any more", false, false, false},
		{"task recovered", false, true, false},
		{"task recovered unseen", false, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.config = "gc {\n image = true\n image_delay = \"1h\"\n}" // not within this process
			d := w.boot()
			task := w.task(``)
			handle, _, err := d.StartTask(task)
			must.NoError(t, err)
			if tc.destroy {
				must.NoError(t, d.DestroyTask(task.ID, true))
			}
			d.kill()
			must.True(t, w.engine.hasImage())

			w.config = collecting
			w.engine.setAway(tc.away)
			d = w.boot()
			if tc.recover {
				must.NoError(t, d.RecoverTask(handle))
				w.engine.setAway(false)
				must.NoError(t, d.DestroyTask(task.ID, true))
			}
			eventually(t, func() bool { return !w.engine.hasImage() })
			eventually(t, func() bool {
				left, err := images.NotesIn(w.stateDir).Read()
				return err == nil && len(left) == 0
			})
		})
	}
}
