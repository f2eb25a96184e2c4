// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/label"
)

// say is a line that the container writes to its output.
func (e *fakeEngine) say(id, line string) {
	e.change(func() { e.containers[id].lines = append(e.containers[id].lines, line) })
}

// Logs numbers the lines: the mark of the nth has a time of n seconds.
func (e *fakeEngine) Logs(ctx context.Context, id string, from docker.LogPosition, _ bool, stdout, _ docker.LineSink) error {
	if e.unreadable {
		return docker.ErrLogsUnreadable
	}
	next := 0
	if !from.Stdout.Time.IsZero() {
		next = int(from.Stdout.Time.Unix())
	}
	for {
		var lines []string
		ended, gone := false, false
		if err := e.await(ctx, func() bool {
			c, ok := e.containers[id]
			gone = !ok
			if ended = gone || !c.Running; ok {
				lines = slices.Clone(c.lines[min(next, len(c.lines)):])
			}
			return !e.away && (ended || len(lines) > 0)
		}); err != nil {
			return err
		}
		for _, line := range lines {
			next++
			mark := docker.LogMark{Time: time.Unix(int64(next), 0).UTC(), Count: 1}
			if err := stdout(mark, bytes.NewBufferString(line+"\n").Bytes()); err != nil {
				return err
			}
		}
		if gone {
			return docker.ErrNotFound
		}
		if ended && len(lines) == 0 {
			return nil
		}
	}
}

func (e *fakeEngine) Exec(_ context.Context, id string, cmd []string, _ int) (docker.ExecResult, error) {
	return docker.ExecResult{Stdout: []byte(cmd[0]), Code: 3}, e.withContainer("Exec", id, func(*fakeContainer) error { return nil })
}

func (e *fakeEngine) ExecStream(_ context.Context, id string, req docker.ExecStreamRequest) (int, error) {
	if err := e.withContainer("ExecStream", id, func(*fakeContainer) error { return nil }); err != nil {
		return 0, err
	}
	_, err := fmt.Fprintln(req.Stdout, req.Cmd[0])
	return 7, err
}

func (e *fakeEngine) CreateSandbox(_ context.Context, spec docker.SandboxSpec) (s docker.Sandbox, created bool, err error) {
	err = e.ask("CreateSandbox", func() error {
		for _, c := range e.containers {
			if c.Name == spec.Name && c.Running {
				s = docker.Sandbox{ID: c.ID, Key: c.SandboxKey}
				return nil
			}
		}
		e.created++
		s, created = docker.Sandbox{ID: fmt.Sprintf("s%d", e.created), Key: fmt.Sprintf("/run/netns/%d", e.created)}, true
		e.containers[s.ID] = &fakeContainer{Container: docker.Container{
			ID: s.ID, Name: spec.Name, Labels: spec.Labels, Status: "running", Running: true, Pid: 1, SandboxKey: s.Key,
		}}
		return nil
	})
	return s, created, err
}

func (e *fakeEngine) RemoveSandbox(ctx context.Context, id string) error {
	if err := e.ask("RemoveSandbox", func() error { return nil }); err != nil {
		return err
	}
	return e.Remove(ctx, id)
}

// put makes a container of the driver as if an earlier process had left it.
func (e *fakeEngine) put(id, attempt, status string) {
	e.change(func() {
		e.containers[id] = &fakeContainer{Container: docker.Container{
			ID: id, Status: status, Running: status == "running",
			Labels: map[string]string{label.Attempt: attempt, label.Alloc: allocID},
			Mounts: map[string]string{"/alloc": "/var/alloc/" + allocID + "/alloc", "/local": "/var/alloc/" + allocID + "/app/local"},
		}}
	})
}

func (e *fakeEngine) ids() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Sorted(maps.Keys(e.containers))
}
