// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/docker/docker/client"

	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/registry"
	"github.com/docker/docker/pkg/jsonmessage"
)

// pull gets an image from its registry, in one pull for all callers that want it now.
func (c *Client) pull(ctx context.Context, ref imageRef, req PullRequest) error {
	auth, err := c.credential.find(ctx, ref.registry, req.Auth)
	if err != nil {
		if !req.AuthSoftFail {
			return fmt.Errorf("%w: credentials for registry %s: %w", ErrImage, ref.registry, err)
		}
		req.progress("No credentials for registry %s, pulling anonymously: %v", ref.registry, err)
	}
	key := pullKey{ref.name, auth}
	shared := c.pulls.join(key, func(ctx context.Context, p *progress) error {
		return c.runPull(ctx, key, req.IdleTimeout, p)
	})
	defer c.pulls.leave(shared)
	req.progress("Downloading image")

	ticker := time.NewTicker(c.timing.progressEvery)
	defer ticker.Stop()
	for {
		select {
		case <-shared.done:
			return shared.err
		case <-ticker.C:
			req.progress("Docker image pull progress: %s", shared.progress.at(time.Now()))
		case <-ctx.Done():
			return fmt.Errorf("pulling image %q: %w", ref.name, context.Cause(ctx))
		}
	}
}

// runPull does one pull. The daemon answers at once and works while its answer is read, so ctx must last to the end of that;
// failures come as messages, not as a status.
func (c *Client) runPull(ctx context.Context, key pullKey, idle time.Duration, p *progress) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	heard := func() {}
	if idle > 0 {
		silence := fmt.Errorf(
			"%w: no progress of %q for %s, check the registry and the network or raise pull_activity_timeout: %w",
			ErrImage, key.ref, idle, context.DeadlineExceeded)
		timer := time.AfterFunc(idle, func() { cancel(silence) })
		defer timer.Stop()
		heard = func() { timer.Reset(idle) }
	}
	header, err := registry.EncodeAuthConfig(key.auth.registry())
	if err != nil {
		return fmt.Errorf("%w: encoding credentials for %q: %w", ErrImage, key.ref, err)
	}
	body, err := ask(c, func(api *client.Client) (io.ReadCloser, error) {
		return api.ImagePull(ctx, key.ref, image.PullOptions{RegistryAuth: header})
	})
	if err == nil {
		defer body.Close()
		err = readMessages(body, func(m jsonmessage.JSONMessage) {
			heard()
			p.add(m)
		})
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return imageError(err, "pulling image %q", key.ref)
}

// readMessages reads the messages of a pull or load to their end. It returns the failure that they report.
func readMessages(r io.Reader, each func(jsonmessage.JSONMessage)) error {
	messages := json.NewDecoder(r)
	for {
		var m jsonmessage.JSONMessage
		switch err := messages.Decode(&m); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading docker's messages: %w", err)
		case m.Error != nil:
			return m.Error
		}
		each(m)
	}
}

// pullKey is what makes two pulls the same. Credentials belong to it: no task fails for, or gains by, another's.
type pullKey struct {
	ref  string
	auth Auth
}

// sharedPull is a pull in flight. It ends when it is done, or when no caller waits for it any more.
type sharedPull struct {
	key      pullKey
	cancel   context.CancelFunc
	waiting  int // guarded by pulls.mu
	progress *progress
	done     chan struct{}
	err      error // to be read once done is closed
}

// pulls keeps it at one pull per image at a time. The zero value is ready for use.
type pulls struct {
	mu     sync.Mutex
	flying map[pullKey]*sharedPull
}

// join returns the pull for key in flight, or starts one with run. The caller must leave it.
func (p *pulls) join(key pullKey, run func(context.Context, *progress) error) *sharedPull {
	p.mu.Lock()
	defer p.mu.Unlock()
	if shared, ok := p.flying[key]; ok {
		shared.waiting++
		return shared
	}
	// No waiter's own context: the pull outlives the one who happened to come first.
	ctx, cancel := context.WithCancel(context.Background())
	shared := &sharedPull{key: key, cancel: cancel, waiting: 1, progress: newProgress(time.Now()), done: make(chan struct{})}
	if p.flying == nil {
		p.flying = map[pullKey]*sharedPull{}
	}
	p.flying[key] = shared
	go func() {
		defer cancel()
		shared.err = run(ctx, shared.progress)
		p.forget(shared)
		close(shared.done)
	}()
	return shared
}

// leave takes one waiter off. The last one ends the pull and sees it out.
func (p *pulls) leave(shared *sharedPull) {
	p.mu.Lock()
	shared.waiting--
	last := shared.waiting == 0
	if last && p.flying[shared.key] == shared {
		delete(p.flying, shared.key)
	}
	p.mu.Unlock()
	if last {
		shared.cancel()
		<-shared.done
	}
}

// forget makes the next caller pull again: results are not kept.
func (p *pulls) forget(shared *sharedPull) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.flying[shared.key] == shared {
		delete(p.flying, shared.key)
	}
}
