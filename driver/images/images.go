// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package images pulls the images of tasks, and removes those that no task uses any more. images.go decides when; notes.go keeps
// over restarts which images were used.
package images

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"nomad-gpu-mem/driver/config"
	"nomad-gpu-mem/driver/docker"
)

// Cache pulls the images of tasks, and removes those that no task has used for
// gc.image_delay, if the operator wants that.
//
// Uses are counted again after a restart, as tasks are recovered. What was used
// is noted in state_dir: an image whose last task ended while no plugin ran, or whose
// delay was cut short, still goes.
type Cache struct {
	logger  hclog.Logger
	engine  Engine
	enabled bool
	delay   time.Duration
	notes   Notes

	mu       sync.Mutex
	users    map[string]map[string]bool // image ID -> task config IDs
	due      map[string]time.Time       // when an image without users goes
	noted    map[string]bool            // as on disk
	removing string                     // image ID
	removed  chan struct{}              // closed when it is
	steps    int                        // removals begun and ended
}

// New returns a cache that removes images as the operator's settings say. It does nothing yet.
func New(logger hclog.Logger, s config.Settings, engine Engine) *Cache {
	return &Cache{
		logger: logger, engine: engine, enabled: s.GC.Image, delay: s.ImageDelay, notes: NotesIn(s.StateDir),
		users: map[string]map[string]bool{}, due: map[string]time.Time{}, noted: map[string]bool{},
	}
}

// Resume takes up what earlier processes have noted. Tasks have until then to be
// recovered.
func (i *Cache) Resume(until time.Time) {
	if !i.enabled {
		return
	}
	noted, err := i.notes.Read()
	if err != nil {
		i.logger.Warn("images used by earlier tasks are not known, and will not be removed", "error", err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, image := range noted {
		i.noted[image], i.due[image] = true, until
	}
}

// Ensure ensures that an image exists for a task, and that it stays.
//
// It may be found there a moment before it is removed, whose decision was made before
// that: then it is brought again.
func (i *Cache) Ensure(ctx context.Context, req docker.PullRequest, task string) (docker.Image, error) {
	held := ""
	for {
		before := i.removals()
		image, err := i.engine.EnsureImage(ctx, req)
		if image.ID != held {
			i.Drop(held, task, time.Now())
		}
		if err != nil {
			return docker.Image{}, err
		}
		held = image.ID
		removal := i.Use(held, task)
		if removal == nil && i.removals() == before {
			return image, nil
		}
		if removal != nil {
			<-removal // it has a time limit
		}
	}
}

func (i *Cache) removals() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.steps
}

// Use says that a task uses the image. It will not be removed then, unless it is being
// removed just now: removal is closed when it has been.
func (i *Cache) Use(image, task string) (removal <-chan struct{}) {
	if !i.enabled || image == "" {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.users[image] == nil {
		i.users[image] = map[string]bool{}
	}
	i.users[image][task] = true
	delete(i.due, image)
	i.note(image, true)
	if i.removing == image {
		return i.removed
	}
	return nil
}

// Drop says that a task no longer uses the image.
func (i *Cache) Drop(image, task string, now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.users[image][task] {
		return
	}
	delete(i.users[image], task)
	if len(i.users[image]) == 0 {
		delete(i.users, image)
		i.due[image] = now.Add(i.delay)
	}
}

// Sweep removes the images that have been without users for long enough.
func (i *Cache) Sweep(ctx context.Context, now time.Time) {
	for ctx.Err() == nil {
		image, found := i.beginRemoval(now)
		if !found {
			return
		}
		err := i.remove(ctx, image)
		i.endRemoval(image, now, err)
	}
}

// beginRemoval picks an image that is due.
func (i *Cache) beginRemoval(now time.Time) (image string, found bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for image, due := range i.due {
		if !now.Before(due) {
			delete(i.due, image)
			i.removing, i.removed = image, make(chan struct{})
			i.steps++
			return image, true
		}
	}
	return "", false
}

// endRemoval lets the tasks that want the image continue. One that could not be removed is
// left alone, except if the daemon did not answer or this process is about to end: it is
// tried again then.
func (i *Cache) endRemoval(image string, now time.Time, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	close(i.removed)
	i.removing = ""
	i.steps++
	unanswered := errors.Is(err, docker.ErrUnavailable) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	switch {
	case len(i.users[image]) > 0: // wanted meanwhile
	case unanswered:
		i.due[image] = now.Add(max(i.delay, time.Second))
	default:
		i.note(image, false)
	}
}

func (i *Cache) remove(ctx context.Context, image string) error {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	err := i.engine.RemoveImage(ctx, image)
	if err != nil {
		i.logger.Warn("an unused image cannot be removed", "image", image, "error", err)
		return err
	}
	i.logger.Info("removed an unused image", "image", image)
	return nil
}

// note writes down that the image was used, or is gone. i.mu is held.
func (i *Cache) note(image string, used bool) {
	if i.noted[image] == used {
		return
	}
	if used {
		i.noted[image] = true
	} else {
		delete(i.noted, image)
	}
	if err := i.notes.Write(maps.Keys(i.noted)); err != nil {
		i.logger.Warn("used images cannot be noted, and will not be removed after a restart of this plugin", "error", err)
	}
}

// removeTimeout bounds the removal of one image.
const removeTimeout = 30 * time.Second

// Engine brings images and removes them.
type Engine interface {
	EnsureImage(ctx context.Context, req docker.PullRequest) (docker.Image, error)
	RemoveImage(ctx context.Context, id string) error
}
