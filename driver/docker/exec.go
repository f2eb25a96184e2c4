// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/docker/docker/client"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"
)

// ExecResult is what a command left behind.
type ExecResult struct {
	Stdout, Stderr []byte // the last bytes of its output
	Code           int
}

// Exec runs a command in a running container and keeps at most the last limit bytes of each output.
//
// The Engine API has no way to end a command: when ctx ends, Exec returns and the command runs on. Errors: ErrNotFound,
// ErrNotRunning, ErrUnavailable.
func (c *Client) Exec(ctx context.Context, id string, cmd []string, limit int) (ExecResult, error) {
	stdout, stderr := tail{limit: limit}, tail{limit: limit}
	code, err := c.ExecStream(ctx, id, ExecStreamRequest{Cmd: cmd, Stdout: &stdout, Stderr: &stderr})
	return ExecResult{Stdout: stdout.kept, Stderr: stderr.kept, Code: code}, err
}

// TermSize is the size of a terminal in characters.
type TermSize struct{ Height, Width uint }

// ExecStreamRequest is a command with live input and output.
type ExecStreamRequest struct {
	Cmd []string
	// TTY gives the command a terminal. All output then goes to Stdout.
	TTY bool
	// Stdin is read to its end, which the command sees as the end of its input. Nil: no input. Reading continues until a
	// Read returns, so the caller should close Stdin once ExecStream has returned.
	Stdin io.Reader
	// Stdout and Stderr take the output. Both are needed, but for Stderr with TTY.
	Stdout, Stderr io.Writer
	// Resize are the terminal's sizes, as they change. Nil: none.
	Resize <-chan TermSize
}

// ExecStream runs a command in a running container and returns its exit code after all of its output was written.
//
// With a terminal it waits for the command alone, not for children that keep the terminal open; as docker exec does. When ctx
// ends, it returns and the command runs on. A program that is not there is no error but, as in a shell, code 126 or 127.
//
// Errors: ErrNotFound, ErrNotRunning, ErrUnavailable, a failing Stdout or Stderr.
func (c *Client) ExecStream(ctx context.Context, id string, req ExecStreamRequest) (int, error) {
	// Resizing and watching end with the call, whatever ends it.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	exec, err := ask(c, func(api *client.Client) (container.ExecCreateResponse, error) {
		return api.ContainerExecCreate(ctx, id, container.ExecOptions{
			Cmd:          req.Cmd,
			Tty:          req.TTY,
			AttachStdin:  req.Stdin != nil,
			AttachStdout: true,
			AttachStderr: true,
		})
	})
	if err != nil {
		return 0, wrap(err, "running %q in container %s", req.Cmd, short(id))
	}
	// Attaching starts the command. Everything from here on goes by the ID of the exec, not of the container.
	conn, err := attach(ctx, c.config.AnswerTimeout, func(ctx context.Context) (types.HijackedResponse, error) {
		return c.sessions.get().api.ContainerExecAttach(ctx, exec.ID, container.ExecAttachOptions{Tty: req.TTY})
	})
	if err != nil {
		return 0, wrap(err, "running %q in container %s", req.Cmd, short(id))
	}
	defer conn.Close()
	hangUp := context.AfterFunc(ctx, conn.Close) // a hijacked connection knows no context
	defer hangUp()

	if req.Stdin != nil {
		go feed(conn, req.Stdin)
	}
	if req.Resize != nil {
		go c.resizeExec(ctx, exec.ID, req.Resize)
	}
	if err := c.drain(ctx, exec.ID, conn, req); err != nil {
		return 0, wrap(err, "output of %q in container %s", req.Cmd, short(id))
	}
	return c.exitCode(ctx, exec.ID)
}

// feed passes input on, and its end: without that half-close the command would wait for more.
func feed(conn types.HijackedResponse, stdin io.Reader) {
	_, _ = io.Copy(conn.Conn, stdin) // fails when the command has ended; its exit code tells
	_ = conn.CloseWrite()
}

// drain copies the output to its end. The end of a terminal's process is an end as well.
func (c *Client) drain(ctx context.Context, execID string, conn types.HijackedResponse, req ExecStreamRequest) error {
	copied := make(chan error, 1)
	terminal := &timedWriter{Writer: req.Stdout}
	if req.TTY {
		req.Stdout = terminal
	}
	go func() { copied <- copyOutput(conn, req) }()
	if !req.TTY {
		return endOfCopy(ctx, <-copied)
	}
	watch, cancel := context.WithCancel(ctx)
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		if c.execEnds(watch, execID) == nil {
			terminal.awaitSilence(watch, c.timing.drainGrace, c.timing.drainMost)
		}
	}()
	defer func() { cancel(); <-exited }()
	select {
	case err := <-copied:
		return endOfCopy(ctx, err)
	case <-exited:
		conn.Close()
		if err := <-copied; !errors.Is(err, net.ErrClosed) {
			return endOfCopy(ctx, err)
		}
		return context.Cause(ctx)
	}
}

func copyOutput(conn types.HijackedResponse, req ExecStreamRequest) error {
	if req.TTY {
		_, err := io.Copy(req.Stdout, conn.Reader)
		return err
	}
	_, err := stdcopy.StdCopy(req.Stdout, req.Stderr, conn.Reader)
	return err
}

// endOfCopy prefers the reason why the connection was closed to the error that this led to.
func endOfCopy(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// resizeExec passes the terminal's sizes on. The first may come before the daemon has the command running, so each is tried a
// few times.
func (c *Client) resizeExec(ctx context.Context, execID string, sizes <-chan TermSize) {
	for {
		select {
		case <-ctx.Done():
			return
		case size, ok := <-sizes:
			if !ok {
				return
			}
			c.resizeOnce(ctx, execID, size)
		}
	}
}

func (c *Client) resizeOnce(ctx context.Context, execID string, size TermSize) {
	poll := c.timing.poll()
	for range 5 {
		err := do(c, func(api *client.Client) error {
			return api.ContainerExecResize(ctx, execID, container.ResizeOptions{Height: size.Height, Width: size.Width})
		})
		if err == nil || poll.wait(ctx) != nil {
			return
		}
	}
}

// errExecLost: the command's output has ended, and yet the daemon does not say that it has exited.
var errExecLost = errors.New("exec ended without an exit code")

// exitCode waits for the daemon to know how a command ended. Its output may end a moment before.
func (c *Client) exitCode(ctx context.Context, execID string) (int, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Second, fmt.Errorf("%w: %w", errExecLost, context.DeadlineExceeded))
	defer cancel()
	if err := c.execEnds(ctx, execID); err != nil {
		return 0, err
	}
	got, err := c.inspectExec(ctx, execID)
	return got.ExitCode, wrap(err, "asking for the exit code of exec %s", execID)
}

func (c *Client) inspectExec(ctx context.Context, execID string) (container.ExecInspect, error) {
	return ask(c, func(api *client.Client) (container.ExecInspect, error) { return api.ContainerExecInspect(ctx, execID) })
}

// execEnds waits until a command has ended.
func (c *Client) execEnds(ctx context.Context, execID string) error {
	poll := c.timing.poll()
	for {
		got, err := c.inspectExec(ctx, execID)
		if err != nil {
			return wrap(err, "looking up exec %s", execID)
		}
		// Not running, without a process and without a code: it has not started yet.
		if !got.Running && (got.Pid != 0 || got.ExitCode != 0) {
			return nil
		}
		if err := poll.wait(ctx); err != nil {
			return err
		}
	}
}

// tail keeps the last limit bytes written to it.
type tail struct {
	limit int
	kept  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - t.limit; over > 0 {
		t.kept = t.kept[:copy(t.kept, t.kept[over:])]
	}
	return len(p), nil
}
