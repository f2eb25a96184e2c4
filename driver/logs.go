// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/driver/attempt"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/logpipe"
	"nomad-gpu-mem/internal/pause"
)

// drainTime is how long the end of a task waits for its last output.
const drainTime = 5 * time.Second

// copyLogs copies a task's output from Docker into the pipes of Nomad's log
// collector until the container has ended. Docker keeps the output meanwhile, so the
// copy resumes at the checkpoint after a restart of this plugin, the collector or the
// daemon.
func (s *services) copyLogs(h *handle) {
	defer close(h.logged)
	if s.settings.DisableLogCollection || discarded(h.task) {
		_ = endBuiltinLogger(h.logger)
		return
	}
	saved, position, err := s.reaper.Checkpoints.Open(h.task.ID, h.container)
	if err != nil {
		s.logger.Warn("logs are copied from their beginning", "task_id", h.task.ID, "error", err)
	}
	if saved != nil {
		defer saved.Close()
	}
	c := &logCopier{
		process:    s.process,
		handle:     h,
		engine:     s.engine,
		checkpoint: saved,
		position:   position,
		keeper:     s.pipes,
		stdout:     &logpipe.Pipe{Path: h.task.StdoutPath, Dir: h.task.AllocDir},
		stderr:     &logpipe.Pipe{Path: h.task.StderrPath, Dir: h.task.AllocDir},
	}
	if h.builtin && !c.takeOverLogs(h.ctx) {
		return
	}
	c.run(h.ctx)
}

// discarded reports whether Nomad wants no logs of the task.
func discarded(task *drivers.TaskConfig) bool {
	return task.StdoutPath == os.DevNull && task.StderrPath == os.DevNull
}

// logCopier copies one task's output.
type logCopier struct {
	process        *process
	handle         *handle
	engine         Containers
	checkpoint     *logpipe.Checkpoint // nil if there is no place for it
	position       docker.LogPosition  // what the pipes have taken
	keeper         *logpipe.Keeper
	stdout, stderr *logpipe.Pipe
}

// run copies until there will be no more output, or until ctx ends. Only in the
// first case is the end of the pipes the end of the task's output.
func (c *logCopier) run(ctx context.Context) {
	defer c.closePipes()
	for c.openPipes(ctx) && c.follow(ctx) {
		if pause.For(ctx, c.process.pace.retry) != nil {
			return
		}
	}
	if ctx.Err() == nil {
		c.releasePipes()
	}
}

// openPipes waits for Nomad's log collector.
func (c *logCopier) openPipes(ctx context.Context) bool {
	for c.stdout.Open() != nil || c.stderr.Open() != nil {
		if pause.For(ctx, c.process.pace.retry) != nil {
			return false
		}
	}
	if err := c.keeper.Hold(c.handle.task.ID, c.stdout.File(), c.stderr.File()); err != nil {
		c.process.logger.Warn("a task's log would end with this plugin", "task_id", c.handle.task.ID, "error", err)
	}
	return true
}

func (c *logCopier) closePipes() {
	c.stdout.Close()
	c.stderr.Close()
}

func (c *logCopier) releasePipes() {
	if err := c.keeper.Release(c.handle.task.ID); err != nil {
		c.process.logger.Debug("a task's log pipes are still held; that ends with Nomad's log collector",
			"task_id", c.handle.task.ID, "error", err)
	}
}

// follow copies until the container has ended, and reports whether to try again.
func (c *logCopier) follow(ctx context.Context) (again bool) {
	err := c.engine.Logs(ctx, c.handle.container, c.position, c.handle.tty,
		c.sink(ctx, c.stdout, &c.position.Stdout), c.sink(ctx, c.stderr, &c.position.Stderr))
	switch {
	case err == nil || ctx.Err() != nil:
		return false
	case errors.Is(err, docker.ErrNotFound):
		return attempt.SameEngine(ctx, c.engine, c.handle.engine) != nil
	case errors.Is(err, docker.ErrLogsUnreadable):
		c.process.announcer.tell(c.handle.task, "No logs: the task's log driver cannot be read back; choose json-file, local or journald")
		return false
	default:
		c.process.logger.Warn("copying a task's logs was interrupted", "task_id", c.handle.task.ID, "error", err)
		return true
	}
}

// sink writes pieces of one stream, and notes them as soon as the pipe has them. Both
// sinks are called from one goroutine.
func (c *logCopier) sink(ctx context.Context, to *logpipe.Pipe, mark *docker.LogMark) docker.LineSink {
	return func(at docker.LogMark, data []byte) error {
		if err := to.Write(ctx, data); err != nil {
			return err
		}
		*mark = at
		c.saveCheckpoint()
		return nil
	}
}

func (c *logCopier) saveCheckpoint() {
	if c.checkpoint == nil {
		return
	}
	if err := c.checkpoint.Save(c.position); err != nil {
		c.process.logger.Warn("how far logs were copied cannot be saved: they will come twice after a restart of this plugin",
			"task_id", c.handle.task.ID, "error", err)
		c.checkpoint = nil
	}
}
