// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package images

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/driver/config"
	"nomad-gpu-mem/driver/docker"
)

// fakeEngine has one image, and pulls none.
type fakeEngine struct {
	mu     sync.Mutex
	images map[string]docker.Image // by reference
	away   bool
	refuse error // removals
}

func newFakeEngine() *fakeEngine {
	return &fakeEngine{images: map[string]docker.Image{"local/app:1": {ID: "sha256:app"}}}
}

func (e *fakeEngine) change(do func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	do()
}

func (e *fakeEngine) EnsureImage(_ context.Context, req docker.PullRequest) (docker.Image, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	image, found := e.images[req.Ref]
	if !found {
		return image, docker.ErrImage
	}
	return image, nil
}

func (e *fakeEngine) RemoveImage(_ context.Context, id string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.away {
		return docker.ErrUnavailable
	}
	if e.refuse == nil {
		maps.DeleteFunc(e.images, func(_ string, image docker.Image) bool { return image.ID == id })
	}
	return e.refuse
}

func (e *fakeEngine) hasImage() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.images) > 0
}

func TestImagesStayIfTheOperatorWants(t *testing.T) {
	t.Parallel()
	i, engine := newImageGC(t, false)
	_, err := i.Ensure(t.Context(), docker.PullRequest{Ref: "local/app:1"}, "one")
	must.NoError(t, err)
	i.Drop("sha256:app", "one", time.Now())
	i.Sweep(t.Context(), time.Now().Add(time.Hour))
	must.True(t, engine.hasImage())
	must.MapEmpty(t, i.users)
}

// newImageGC removes images a minute after their last use.
func newImageGC(t *testing.T, enabled bool) (*Cache, *fakeEngine) {
	t.Helper()
	engine := newFakeEngine()
	return New(hclog.NewNullLogger(), config.Settings{
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
			_, err := i.Ensure(t.Context(), docker.PullRequest{Ref: "local/app:1"}, task)
			must.NoError(t, err)
		}
		i.Drop(image, "one", at(0))
		i.Drop(image, "one", at(0)) // twice is once
		i.Sweep(t.Context(), at(10))
		must.True(t, engine.hasImage())
		i.Drop(image, "two", at(10))
		i.Sweep(t.Context(), at(10.9))
		must.True(t, engine.hasImage())
		i.Sweep(t.Context(), at(11))
		must.False(t, engine.hasImage())
	})
	t.Run("not if it is used again", func(t *testing.T) {
		t.Parallel()
		i, engine := newImageGC(t, true)
		i.Use(image, "one")
		i.Drop(image, "one", at(0))
		i.Use(image, "two")
		i.Sweep(t.Context(), at(10))
		must.True(t, engine.hasImage())
	})
	t.Run("again if the daemon is unavailable", func(t *testing.T) {
		t.Parallel()
		i, engine := newImageGC(t, true)
		i.Use(image, "one")
		i.Drop(image, "one", at(0))
		engine.change(func() { engine.away = true })
		i.Sweep(t.Context(), at(1))
		engine.change(func() { engine.away = false })
		i.Sweep(t.Context(), at(3))
		must.False(t, engine.hasImage())
	})
	t.Run("not again if the daemon refuses", func(t *testing.T) {
		t.Parallel()
		i, engine := newImageGC(t, true)
		i.Use(image, "one")
		i.Drop(image, "one", at(0))
		engine.change(func() { engine.refuse = errors.New("read-only file system") })
		i.Sweep(t.Context(), at(1))
		engine.change(func() { engine.refuse = nil })
		i.Sweep(t.Context(), at(3))
		must.True(t, engine.hasImage())
	})
	t.Run("no more once the plugin ends", func(t *testing.T) {
		t.Parallel()
		i, engine := newImageGC(t, true)
		i.Use(image, "one")
		i.Drop(image, "one", at(0))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		i.Sweep(ctx, at(10))
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
	i.Use("sha256:app", "one")
	i.Drop("sha256:app", "one", time.Now())
	swept := make(chan struct{})
	go func() {
		defer close(swept)
		i.Sweep(context.Background(), time.Now().Add(time.Hour))
	}()
	<-engine.removing
	image, err := i.Ensure(t.Context(), docker.PullRequest{Ref: "local/app:1"}, "two")
	must.NoError(t, err)
	must.Eq(t, "sha256:app", image.ID)
	<-swept
	must.True(t, engine.hasImage())
	left, err := i.notes.Read()
	must.NoError(t, err)
	must.Eq(t, []string{"sha256:app"}, left)
}

func TestImageNotes(t *testing.T) {
	t.Parallel()
	i, _ := newImageGC(t, true)
	must.NoError(t, os.WriteFile(i.notes.path, []byte("nonsense"), 0o600))
	i.Resume(time.Now()) // warns
	i.Use("sha256:b", "one")
	i.Use("sha256:a", "one")
	left, err := i.notes.Read()
	must.NoError(t, err)
	must.Eq(t, []string{"sha256:a", "sha256:b"}, left)
	entries, err := os.ReadDir(filepath.Dir(i.notes.path))
	must.NoError(t, err)
	must.SliceLen(t, 1, entries)
}
