// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/docker/docker/client"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"
)

// LogMark is the place of one piece of output in one stream. The parts of a long line share their time, so the time alone does
// not say where to continue.
type LogMark struct {
	Time  time.Time `json:"time"`
	Count int       `json:"count"` // pieces with this time so far, this one included
}

// LogPosition is how far a container's output was delivered: the last mark of each stream. The zero value is the beginning;
// the present time with a count of 0 is "from now on".
type LogPosition struct {
	Stdout LogMark `json:"stdout"`
	Stderr LogMark `json:"stderr"`
}

// LineSink takes whole lines with their newlines, or parts of lines that are long or have none. at is the mark of the last
// piece. data is valid during the call only.
type LineSink func(at LogMark, data []byte) error

// Logs delivers a started container's output after from, byte for byte and each piece once, until the container has ended and
// everything was delivered. It survives lost connections and restarts of the daemon. With tty all output goes to stdout.
//
// The sinks are called one at a time. If one fails, Logs returns its error as it is; the caller continues later from the marks that
// it kept. Other errors: ErrNotFound (the container was removed), ErrLogsUnreadable (permanently), the cause
// of ctx.
func (c *Client) Logs(ctx context.Context, id string, from LogPosition, tty bool, stdout, stderr LineSink) error {
	follower := &follower{
		stdout: cursor{after: from.Stdout, sink: stdout},
		stderr: cursor{after: from.Stderr, sink: stderr},
	}
	poll := c.timing.poll()
	for {
		// A stream may end early: the daemon stops, or loses the last lines while following. Only one that was opened after
		// the container's end, and ended by itself, is known to be complete.
		at, err := c.Inspect(ctx, id)
		if err == nil {
			err = c.copyLogs(ctx, id, at.Running, tty, follower)
		}
		failed := sinkError{}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &failed):
			return failed.error
		case err == nil && !at.Running:
			return nil
		case errors.Is(err, ErrLogsUnreadable), err != nil && !at.Running && !passing(err):
			return err
		case err == nil:
			poll = c.timing.poll()
		}
		if err := poll.wait(ctx); err != nil {
			return err
		}
	}
}

// copyLogs delivers one stream to its end. Nil means that it ended by itself.
func (c *Client) copyLogs(ctx context.Context, id string, follow, tty bool, to *follower) error {
	body, err := ask(c, func(api *client.Client) (io.ReadCloser, error) {
		return api.ContainerLogs(ctx, id, container.LogsOptions{
			ShowStdout: true,
			ShowStderr: true,
			Timestamps: true,
			Follow:     follow,
			Since:      to.since(),
		})
	})
	if err != nil {
		return wrap(err, "reading the logs of container %s", short(id))
	}
	defer body.Close()
	to.reopen()
	var stream frames = newMultiplexed(body)
	if tty {
		stream = newTerminal(body)
	}
	return wrap(to.copy(stream), "reading the logs of container %s", short(id))
}

// follower sorts pieces into the two streams and drops those that were delivered before.
type follower struct{ stdout, stderr cursor }

// slack is how much earlier than an older piece of the other stream a piece may be stamped: the daemon stamps first and writes
// then, each stream for itself.
const slack = time.Minute

// since is where the daemon should begin to read, in its notation. Empty: at the beginning. It need not be exact.
func (f *follower) since() string {
	last := f.stdout.after.Time
	if f.stderr.after.Time.After(last) {
		last = f.stderr.after.Time
	}
	if last.IsZero() {
		return ""
	}
	last = last.Add(-slack)
	return fmt.Sprintf("%d.%09d", last.Unix(), last.Nanosecond())
}

func (f *follower) reopen() {
	f.stdout.reopen()
	f.stderr.reopen()
}

// breath is how long copy lets a stream that brings little at a time gather more.
const breath = time.Millisecond

// copy delivers a stream to its end. Pieces wait for the next ones only as long as those are at hand. The daemon writes each
// line by itself: a reader that is awake for each costs daemon, driver and collector more than the lines do.
func (f *follower) copy(stream frames) error {
	for got := 0; ; {
		piece, err := stream.next()
		switch {
		case errors.Is(err, io.EOF):
			return f.flush()
		case err != nil:
			return cmp.Or(f.flush(), err)
		}
		if err := f.deliver(piece); err != nil {
			return err
		}
		got += len(piece.data)
		if stream.ahead() {
			continue
		}
		if err := f.flush(); err != nil {
			return err
		}
		if got < atOnce/2 {
			time.Sleep(breath)
		}
		got = 0
	}
}

// flush hands what waits to the sinks.
func (f *follower) flush() error {
	return cmp.Or(f.stdout.flush(), f.stderr.flush())
}

func (f *follower) deliver(piece frame) error {
	if piece.stream == stdcopy.Stderr {
		return f.stderr.deliver(piece)
	}
	return f.stdout.deliver(piece)
}

// cursor is the place in one stream.
type cursor struct {
	sink    LineSink
	after   LogMark // the last piece delivered, or waiting for it
	read    LogMark // the last piece read since the stream was opened
	first   []byte  // the first piece with the time of read
	whole   bool    // read ends a line
	fresh   bool    // past the pieces delivered before
	waiting []byte  // pieces to be delivered together, up to after
}

// atOnce is how much is delivered together: what a pipe takes wholly or not at all (PIPE_BUF), so that a process that
// is killed while it writes leaves no half line.
const atOnce = 4096

func (c *cursor) reopen() {
	c.read, c.whole, c.fresh = LogMark{}, false, false
}

func (c *cursor) deliver(piece frame) error {
	c.note(piece)
	isNew := c.read.isAfter(c.after) || c.fresh && c.clockSetBack()
	if !isNew {
		return nil
	}
	c.fresh = true
	if len(c.waiting)+len(piece.data) > atOnce {
		if err := c.flush(); err != nil {
			return err
		}
	}
	c.waiting = append(c.waiting, piece.data...)
	c.after = c.read
	return nil
}

// note counts the piece. One that follows a whole line of its own time, and is what that line began with, is that line once
// more: a daemon that rotates its files under a reader may begin to read again there. Only parts of one line share a time.
func (c *cursor) note(piece frame) {
	again := c.whole && bytes.Equal(c.first, piece.data)
	if c.read.Time.Equal(piece.at) && !again {
		c.read.Count++
	} else {
		c.read = LogMark{Time: piece.at, Count: 1}
		c.first = append(c.first[:0], piece.data...)
	}
	c.whole = bytes.HasSuffix(piece.data, []byte("\n"))
}

// clockSetBack reports whether what is stamped earlier than the last piece can be new. If the clock was not set back, it was
// delivered before: a daemon that rotates its files under a reader may read one of them to it again.
func (c *cursor) clockSetBack() bool { return c.after.Time.After(time.Now()) }

// flush delivers the pieces that wait.
func (c *cursor) flush() error {
	if len(c.waiting) == 0 {
		return nil
	}
	if err := c.sink(c.after, c.waiting); err != nil {
		return sinkError{err}
	}
	c.waiting = c.waiting[:0]
	return nil
}

func (m LogMark) isAfter(other LogMark) bool {
	if m.Time.Equal(other.Time) {
		return m.Count > other.Count
	}
	return m.Time.After(other.Time)
}

// sinkError keeps a sink's failure apart from the daemon's.
type sinkError struct{ error }

func (e sinkError) Unwrap() error { return e.error }
