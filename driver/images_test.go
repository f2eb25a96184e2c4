// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/driver/config"
	"nomad-gpu-mem/driver/docker"
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
				left, err := notesOfImages(w.stateDir).read()
				return err == nil && len(left) == 0
			})
		})
	}
}

func TestImagesStayIfTheOperatorWants(t *testing.T) {
	t.Parallel()
	i, engine := newImageGC(t, false)
	_, err := i.bring(t.Context(), docker.PullRequest{Ref: "local/app:1"}, "one")
	must.NoError(t, err)
	i.drop("sha256:app", "one", time.Now())
	i.sweep(t.Context(), time.Now().Add(time.Hour))
	must.True(t, engine.hasImage())
	must.MapEmpty(t, i.users)
}

// newImageGC removes images a minute after their last use.
func newImageGC(t *testing.T, enabled bool) (*images, *fakeEngine) {
	t.Helper()
	engine := newFakeEngine()
	return newImages(quiet(), config.Settings{
		Config: config.Config{StateDir: t.TempDir(), GC: config.GC{Image: enabled}}, ImageDelay: time.Minute,
	}, engine), engine
}

func TestImageCollection(t *testing.T) {
	t.Parallel()
	const image = "sha256:app"
	begin := time.Now()
	at := func(minutes float64) time.Time { return begin.Add(time.Duration(minutes * float64(time.Minute))) }

	t.Run("at the last of its tasks, after the delay", func(t *testing.T) {
		t.Parallel()
		i, engine := newImageGC(t, true)
		for _, task := range []string{"one", "two"} {
			_, err := i.bring(t.Context(), docker.PullRequest{Ref: "local/app:1"}, task)
			must.NoError(t, err)
		}
		i.drop(image, "one", at(0))
		i.drop(image, "one", at(0)) // twice is once
		i.sweep(t.Context(), at(10))
		must.True(t, engine.hasImage())
		i.drop(image, "two", at(10))
		i.sweep(t.Context(), at(10.9))
		must.True(t, engine.hasImage())
		i.sweep(t.Context(), at(11))
		must.False(t, engine.hasImage())
	})
	t.Run("not if it is used again", func(t *testing.T) {
		t.Parallel()
		i, engine := newImageGC(t, true)
		i.use(image, "one")
		i.drop(image, "one", at(0))
		i.use(image, "two")
		i.sweep(t.Context(), at(10))
		must.True(t, engine.hasImage())
	})
	t.Run("again if the daemon is unavailable", func(t *testing.T) {
		t.Parallel()
		i, engine := newImageGC(t, true)
		i.use(image, "one")
		i.drop(image, "one", at(0))
		engine.setAway(true)
		i.sweep(t.Context(), at(1))
		engine.setAway(false)
		i.sweep(t.Context(), at(3))
		must.False(t, engine.hasImage())
	})
	t.Run("not again if the daemon refuses", func(t *testing.T) {
		t.Parallel()
		i, engine := newImageGC(t, true)
		i.use(image, "one")
		i.drop(image, "one", at(0))
		engine.fail("RemoveImage", errors.New("read-only file system"))
		i.sweep(t.Context(), at(1))
		engine.fail("RemoveImage", nil)
		i.sweep(t.Context(), at(3))
		must.True(t, engine.hasImage())
	})
	t.Run("no more once the plugin ends", func(t *testing.T) {
		t.Parallel()
		i, engine := newImageGC(t, true)
		i.use(image, "one")
		i.drop(image, "one", at(0))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		i.sweep(ctx, at(10))
		must.True(t, engine.hasImage())
	})
}

// slowEngine takes its time to remove an image, and forgets it only then.
type slowEngine struct {
	*fakeEngine
	removing, ensured chan struct{}
}

func (e *slowEngine) RemoveImage(ctx context.Context, id string) error {
	close(e.removing)
	<-e.ensured
	return e.fakeEngine.RemoveImage(ctx, id)
}

func (e *slowEngine) EnsureImage(ctx context.Context, req docker.PullRequest) (docker.Image, error) {
	image, err := e.fakeEngine.EnsureImage(ctx, req)
	if err != nil { // gone: it is pulled
		image = docker.Image{ID: "sha256:app"}
		e.change(func() { e.images[req.Ref] = image })
		return image, nil
	}
	close(e.ensured)
	return image, nil
}

// A task that finds an image which is being removed gets it again.
func TestImageIsRemovedUnderAStart(t *testing.T) {
	t.Parallel()
	i, fake := newImageGC(t, true)
	engine := &slowEngine{fake, make(chan struct{}), make(chan struct{})}
	i.engine = engine
	i.use("sha256:app", "one")
	i.drop("sha256:app", "one", time.Now())
	swept := make(chan struct{})
	go func() {
		defer close(swept)
		i.sweep(context.Background(), time.Now().Add(time.Hour))
	}()
	<-engine.removing
	image, err := i.bring(t.Context(), docker.PullRequest{Ref: "local/app:1"}, "two")
	must.NoError(t, err)
	must.Eq(t, "sha256:app", image.ID)
	<-swept
	must.True(t, engine.hasImage())
	left, err := i.notes.read()
	must.NoError(t, err)
	must.Eq(t, []string{"sha256:app"}, left)
}

func TestImageNotes(t *testing.T) {
	t.Parallel()
	i, _ := newImageGC(t, true)
	must.NoError(t, os.WriteFile(i.notes.path, []byte("nonsense"), 0o600))
	i.resume(time.Now()) // warns
	i.use("sha256:b", "one")
	i.use("sha256:a", "one")
	left, err := i.notes.read()
	must.NoError(t, err)
	must.Eq(t, []string{"sha256:a", "sha256:b"}, left)
	entries, err := os.ReadDir(filepath.Dir(i.notes.path))
	must.NoError(t, err)
	must.SliceLen(t, 1, entries)
}
