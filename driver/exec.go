// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/driver/docker"
)

// ExecTask runs a command in the task's container, for script checks. The last bytes
// of its output are kept.
func (p *Plugin) ExecTask(id string, command []string, timeout time.Duration) (*drivers.ExecTaskResult, error) {
	h, s, err := p.execIn(id, command)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(h.ctx, timeout)
	defer cancel()
	result, err := s.engine.Exec(ctx, h.container, command, int(drivers.CheckBufSize))
	if err != nil {
		return nil, fmt.Errorf("command %q in task %q: %w", command[0], h.task.Name, err)
	}
	return &drivers.ExecTaskResult{
		Stdout:     result.Stdout,
		Stderr:     result.Stderr,
		ExitResult: &drivers.ExitResult{ExitCode: result.Code},
	}, nil
}

// ExecTaskStreaming runs a command with live input and output, for `nomad alloc exec`.
// It closes the streams: those at their other ends wait for that.
func (p *Plugin) ExecTaskStreaming(ctx context.Context, id string, options *drivers.ExecOptions) (*drivers.ExitResult, error) {
	for _, stream := range []io.Closer{options.Stdin, options.Stdout, options.Stderr} {
		defer stream.Close()
	}
	h, s, err := p.execIn(id, options.Command)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	code, err := s.engine.ExecStream(ctx, h.container, docker.ExecStreamRequest{
		Cmd:    options.Command,
		TTY:    options.Tty,
		Stdin:  options.Stdin,
		Stdout: options.Stdout,
		Stderr: options.Stderr,
		Resize: resizes(ctx, options.ResizeCh),
	})
	if err != nil {
		return nil, fmt.Errorf("command %q in task %q: %w", options.Command[0], h.task.Name, err)
	}
	return &drivers.ExitResult{ExitCode: code}, nil
}

func (p *Plugin) execIn(id string, command []string) (*handle, *services, error) {
	h, ok := p.task(id)
	if !ok {
		return nil, nil, drivers.ErrTaskNotFound
	}
	if len(command) == 0 {
		return nil, nil, fmt.Errorf("no command to run in task %q", h.task.Name)
	}
	s, err := p.serving()
	return h, s, err
}

// resizes passes terminal sizes on until ctx ends.
func resizes(ctx context.Context, from <-chan drivers.TerminalSize) <-chan docker.TermSize {
	if from == nil {
		return nil
	}
	to := make(chan docker.TermSize)
	go func() {
		defer close(to)
		for {
			select {
			case size, ok := <-from:
				if !ok {
					return
				}
				select {
				case to <- docker.TermSize{Height: uint(max(size.Height, 0)), Width: uint(max(size.Width, 0))}:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return to
}
