package driver

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// removeImage removes an image by ID. One that is gone or in use is no error.
type removeImage func(ctx context.Context, id string) error

// images removes the images that no task has used for a while, if the operator wants
// that. Who uses what is counted anew after a restart, as tasks are recovered.
type images struct {
	logger  hclog.Logger
	enabled bool
	delay   time.Duration
	remove  removeImage

	mu    sync.Mutex
	users map[string]map[string]bool // image ID -> task config IDs
	used  map[string]int             // image ID -> how often it was taken into use
}

func newImages(logger hclog.Logger, s settings, remove removeImage) *images {
	return &images{
		logger: logger, enabled: s.GC.Image, delay: s.imageDelay, remove: remove,
		users: map[string]map[string]bool{}, used: map[string]int{},
	}
}

// use says that a task uses the image.
func (i *images) use(image, task string) {
	if !i.enabled || image == "" {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.users[image] == nil {
		i.users[image] = map[string]bool{}
	}
	i.users[image][task] = true
	i.used[image]++
}

// drop says that a task no longer uses the image, and returns what is to be run
// in the background then; nil if there is nothing to do.
func (i *images) drop(image, task string) (later func(ctx context.Context)) {
	if !i.enabled || image == "" {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.users[image], task)
	if len(i.users[image]) > 0 {
		return nil
	}
	delete(i.users, image)
	since := i.used[image]
	return func(ctx context.Context) {
		if pause(ctx, i.delay) && i.unusedSince(image, since) {
			i.collect(ctx, image)
		}
	}
}

func (i *images) unusedSince(image string, used int) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.used[image] == used
}

func (i *images) collect(ctx context.Context, image string) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if err := i.remove(ctx, image); err != nil {
		i.logger.Warn("an unused image cannot be removed", "image", image, "error", err)
		return
	}
	i.logger.Info("removed an unused image", "image", image)
}

// dropImage lets go of a task's image.
func (p *Plugin) dropImage(s *services, image, task string) {
	if later := s.images.drop(image, task); later != nil {
		p.spawn(func() { later(p.ctx) })
	}
}
