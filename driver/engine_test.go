// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"nomad-gpu-mem/driver/docker"
)

// fakeEngine is a small container engine: containers are created, run until they are
// stopped, and are gone when removed. A container whose command is "exit" ends at once.
type fakeEngine struct {
	mu           sync.Mutex
	changed      chan struct{} // closed and replaced at every change
	id           string
	containers   map[string]*fakeContainer
	pull         docker.PullRequest // the last
	images       map[string]docker.Image
	runtimes     []string
	cdi          docker.CDI
	runtimePaths map[string]string
	created      int
	away         bool             // the daemon does not answer
	unreadable   bool             // the log driver keeps nothing
	fails        map[string]error // by method, until taken back
}

type fakeContainer struct {
	docker.Container
	spec  docker.Spec
	lines []string
}

func newFakeEngine() *fakeEngine {
	return &fakeEngine{
		changed:    make(chan struct{}),
		id:         "engine-1",
		containers: map[string]*fakeContainer{},
		images:     map[string]docker.Image{"local/app:1": {ID: "sha256:app"}},
		runtimes:   []string{"nvidia", "runc"},
		fails:      map[string]error{},
	}
}

// change runs do and wakes everyone who waits for something to happen.
func (e *fakeEngine) change(do func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	do()
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *fakeEngine) fail(method string, err error) { e.change(func() { e.fails[method] = err }) }
func (e *fakeEngine) setAway(away bool)             { e.change(func() { e.away = away }) }

// ask runs do under the lock if the daemon is there and the method is not to fail.
func (e *fakeEngine) ask(method string, do func() error) (err error) {
	e.change(func() {
		switch {
		case e.away:
			err = docker.ErrUnavailable
		case e.fails[method] != nil:
			err = e.fails[method]
		default:
			err = do()
		}
	})
	return err
}

// withContainer is ask about one container, by ID or name.
func (e *fakeEngine) withContainer(method, id string, do func(c *fakeContainer) error) error {
	return e.ask(method, func() error {
		for _, c := range e.containers {
			if c.ID == id || c.Name == id {
				return do(c)
			}
		}
		return fmt.Errorf("%s: %w", id, docker.ErrNotFound)
	})
}

func (e *fakeEngine) Close() error { return nil }

func (e *fakeEngine) ID(context.Context) (id string, err error) {
	err = e.ask("ID", func() error { id = e.id; return nil })
	return id, err
}

func (e *fakeEngine) Info(context.Context) (info docker.Info, err error) {
	err = e.ask("Info", func() error {
		info = docker.Info{ID: e.id, Version: "28.0.0", OSType: "linux", Runtimes: slices.Clone(e.runtimes), CDI: e.cdi, RuntimePaths: e.runtimePaths, BridgeIP: "172.17.0.1"}
		return nil
	})
	return info, err
}

func (e *fakeEngine) EnsureImage(_ context.Context, req docker.PullRequest) (image docker.Image, err error) {
	err = e.ask("EnsureImage", func() (err error) {
		e.pull = req
		var ok bool
		if image, ok = e.images[req.Ref]; !ok {
			err = fmt.Errorf("%s: %w", req.Ref, docker.ErrImage)
		}
		return err
	})
	return image, err
}

func (e *fakeEngine) lastPull() docker.PullRequest {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pull
}

func (e *fakeEngine) RemoveImage(_ context.Context, id string) error {
	return e.ask("RemoveImage", func() error {
		maps.DeleteFunc(e.images, func(_ string, image docker.Image) bool { return image.ID == id })
		return nil
	})
}

func (e *fakeEngine) hasImage() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.images) > 0
}

func (e *fakeEngine) Create(_ context.Context, spec docker.Spec) (id string, err error) {
	err = e.ask("Create", func() error {
		for _, c := range e.containers {
			if c.Name != spec.Name {
				continue
			}
			if !maps.Equal(c.Labels, spec.Config.Labels) {
				return docker.ErrNameTaken
			}
			if c.Running {
				id = c.ID
				return nil
			}
			delete(e.containers, c.ID)
		}
		e.created++
		id = fmt.Sprintf("c%d", e.created)
		e.containers[id] = &fakeContainer{spec: spec, Container: docker.Container{
			ID: id, Name: spec.Name, Status: "created", CreatedAt: time.Now(), Labels: spec.Config.Labels, TTY: spec.Config.Tty,
			Image: spec.Config.Image, Mounts: mountsOf(spec),
		}}
		return nil
	})
	return id, err
}

func mountsOf(spec docker.Spec) map[string]string {
	mounts := map[string]string{}
	for _, bind := range spec.Host.Binds {
		parts := strings.Split(bind, ":")
		mounts[parts[1]] = parts[0]
	}
	return mounts
}

func (e *fakeEngine) Start(_ context.Context, id string) error {
	return e.withContainer("Start", id, func(c *fakeContainer) error {
		if c.Running {
			return nil
		}
		c.Running, c.Status, c.StartedAt = true, "running", time.Now()
		c.IP, c.NetworkName = "172.17.0.9", "bridge"
		if len(c.spec.Config.Cmd) > 0 && c.spec.Config.Cmd[0] == "exit" {
			c.end(0)
		}
		return nil
	})
}

func (c *fakeContainer) end(code int) {
	c.Running, c.Status, c.ExitCode, c.FinishedAt = false, "exited", code, time.Now()
}

// await blocks until do reports that it is done.
func (e *fakeEngine) await(ctx context.Context, do func() (done bool)) error {
	for {
		e.mu.Lock()
		done, changed := do(), e.changed
		e.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (e *fakeEngine) Wait(ctx context.Context, id string) (exit docker.Exit, err error) {
	waitErr := e.await(ctx, func() bool {
		c, ok := e.containers[id]
		switch {
		case e.away:
			return false
		case !ok:
			err = docker.ErrNotFound
			return true
		case c.Running:
			return false
		}
		exit = docker.Exit{Code: c.ExitCode, OOMKilled: c.OOMKilled, FinishedAt: c.FinishedAt}
		return true
	})
	if waitErr != nil {
		return exit, waitErr
	}
	return exit, err
}

func (e *fakeEngine) Stop(_ context.Context, id, _ string, _ time.Duration) error {
	err := e.withContainer("Stop", id, func(c *fakeContainer) error {
		if c.Running {
			c.end(143)
		}
		return nil
	})
	return ignoreNotFound(err)
}

func (e *fakeEngine) Signal(_ context.Context, id, signal string) error {
	return e.withContainer("Signal", id, func(c *fakeContainer) error {
		c.lines = append(c.lines, "got "+signal)
		return nil
	})
}

func (e *fakeEngine) Remove(_ context.Context, id string) error {
	err := e.withContainer("Remove", id, func(c *fakeContainer) error {
		delete(e.containers, c.ID)
		return nil
	})
	return ignoreNotFound(err)
}

func (e *fakeEngine) SetCPUs(_ context.Context, id, cpus string) error {
	return e.withContainer("SetCPUs", id, func(c *fakeContainer) error {
		c.spec.Host.CpusetCpus = cpus
		return nil
	})
}

// cpus are the CPUs of the only container.
func (e *fakeEngine) cpus() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.containers {
		return c.spec.Host.CpusetCpus
	}
	return ""
}

func ignoreNotFound(err error) error {
	if errors.Is(err, docker.ErrNotFound) {
		return nil
	}
	return err
}

func (e *fakeEngine) Inspect(_ context.Context, id string) (found docker.Container, err error) {
	err = e.withContainer("Inspect", id, func(c *fakeContainer) error {
		found = c.Container
		if c.Running {
			return e.fails["Inspect started"]
		}
		return nil
	})
	return found, err
}

func (e *fakeEngine) List(_ context.Context, labels map[string]string) (found []docker.Container, err error) {
	err = e.ask("List", func() error {
		for _, c := range e.containers {
			if carries(c.Labels, labels) {
				found = append(found, c.Container)
			}
		}
		return nil
	})
	return found, err
}

func carries(has, wants map[string]string) bool {
	for key, want := range wants {
		if value, ok := has[key]; !ok || (want != "" && value != want) {
			return false
		}
	}
	return true
}

func (e *fakeEngine) Stats(_ context.Context, id string) (docker.Sample, error) {
	return docker.Sample{Time: time.Now(), CPUPercent: 50, MemoryUsage: 1 << 20}, e.withContainer("Stats", id, func(*fakeContainer) error { return nil })
}

// running returns the containers that run.
func (e *fakeEngine) running() (all []*fakeContainer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.containers {
		if c.Running {
			all = append(all, c)
		}
	}
	return all
}

func (e *fakeEngine) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.containers)
}

var _ Engine = (*fakeEngine)(nil)
