package driver

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/driver/docker"
)

// drainTime is how long the end of a task waits for its last output.
const drainTime = 5 * time.Second

// copyLogs copies a task's output from Docker into the pipes of Nomad's log
// collector until the container has ended. Docker keeps the output meanwhile, so it
// goes on from the checkpoint after a restart of this plugin, the collector or the
// daemon.
func (p *Plugin) copyLogs(s *services, h *handle) {
	defer close(h.logged)
	if s.settings.DisableLogCollection || discarded(h.task) {
		return
	}
	c := &logCopier{
		plugin:     p,
		handle:     h,
		engine:     s.engine,
		checkpoint: checkpoint{dir: h.task.TaskDir().Dir, container: h.container},
		stdout:     &fifo{path: h.task.StdoutPath, retry: p.pace.retry},
		stderr:     &fifo{path: h.task.StderrPath, retry: p.pace.retry},
	}
	c.run(h.ctx)
}

// discarded reports whether Nomad wants no logs of the task.
func discarded(task *drivers.TaskConfig) bool {
	return task.StdoutPath == os.DevNull && task.StderrPath == os.DevNull
}

// logCopier copies one task's output.
type logCopier struct {
	plugin         *Plugin
	handle         *handle
	engine         Containers
	checkpoint     checkpoint
	stdout, stderr *fifo

	mu       sync.Mutex
	position docker.LogPosition // what the pipes have taken
	saved    docker.LogPosition
}

func (c *logCopier) run(ctx context.Context) {
	defer c.stdout.close()
	defer c.stderr.close()
	position, err := c.checkpoint.load()
	if err != nil {
		c.plugin.logger.Warn("logs are copied from their beginning", "task_id", c.handle.task.ID, "error", err)
	}
	c.position, c.saved = position, position

	saving, done := context.WithCancel(ctx)
	var saver sync.WaitGroup
	saver.Go(func() { every(saving, c.plugin.pace.checkpoint, c.save) })
	defer c.save()
	defer saver.Wait()
	defer done()

	for c.follow(ctx) && pause(ctx, c.plugin.pace.retry) {
	}
}

// follow copies until the container has ended, and reports whether to try again.
func (c *logCopier) follow(ctx context.Context) (again bool) {
	err := c.engine.Logs(ctx, c.handle.container, c.at(), c.handle.tty,
		c.sink(ctx, c.stdout, func(p *docker.LogPosition) *docker.LogMark { return &p.Stdout }),
		c.sink(ctx, c.stderr, func(p *docker.LogPosition) *docker.LogMark { return &p.Stderr }))
	switch {
	case err == nil || ctx.Err() != nil || errors.Is(err, docker.ErrNotFound):
		return false
	case errors.Is(err, docker.ErrLogsUnreadable):
		c.plugin.announcer.tell(c.handle.task, "No logs: the task's log driver cannot be read back; choose json-file, local or journald")
		return false
	default:
		c.plugin.logger.Warn("copying a task's logs was interrupted", "task_id", c.handle.task.ID, "error", err)
		return true
	}
}

func (c *logCopier) sink(ctx context.Context, to *fifo, mark func(*docker.LogPosition) *docker.LogMark) docker.LineSink {
	return func(at docker.LogMark, data []byte) error {
		if err := to.write(ctx, data); err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		*mark(&c.position) = at
		return nil
	}
}

func (c *logCopier) at() docker.LogPosition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.position
}

func (c *logCopier) save() {
	position := c.at()
	if position == c.saved {
		return
	}
	if err := c.checkpoint.save(position); err != nil {
		c.plugin.logger.Warn("how far logs were copied could not be saved: some may come twice after a restart",
			"task_id", c.handle.task.ID, "error", err)
		return
	}
	c.saved = position
}
