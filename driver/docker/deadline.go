// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"sync"
	"time"
)

// answerTimeout is what Nomad's own driver gives the daemon for a call.
const answerTimeout = 5 * time.Minute

// pingTimeout is for the first question to a daemon, which only asks for its API version:
// the call that follows has its own time.
const pingTimeout = 30 * time.Second

// deadlines gives every call to the daemon, its answer's body included, a time within
// which it must be done. A daemon that accepts connections and does not answer
// must not hold a start, and the claim of its task, for ever.
type deadlines struct {
	next  http.RoundTripper
	limit time.Duration
}

// longCalls have no such time, since they take as long as what they wait for. The
// caller's context bounds them, and in case of a stop what Client.Stop allows.
var longCalls = regexp.MustCompile(`/(containers/[^/]+/(wait|logs|stop)|images/(create|load))$`)

var pings = regexp.MustCompile(`/_ping$`)

// RoundTrip implements http.RoundTripper.
func (d deadlines) RoundTrip(req *http.Request) (*http.Response, error) {
	if longCalls.MatchString(req.URL.Path) {
		return d.next.RoundTrip(req)
	}
	limit := d.limit
	if pings.MatchString(req.URL.Path) {
		limit = min(limit, pingTimeout)
	}
	ctx, cancel := context.WithTimeoutCause(req.Context(), limit, noAnswer{limit})
	answer, err := d.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		err = silence(ctx, err)
		cancel()
		return nil, err
	}
	answer.Body = &boundedBody{body: answer.Body, ctx: ctx, cancel: cancel}
	return answer, nil
}

// boundedBody is the body of an answer that must end in time.
type boundedBody struct {
	body   io.ReadCloser
	ctx    context.Context //nolint:containedctx // of the call, of which this is the rest
	cancel context.CancelFunc
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = silence(b.ctx, err)
	}
	return n, err
}

func (b *boundedBody) Close() error {
	b.cancel()
	return b.body.Close()
}

// silence returns a noAnswer if that is why ctx has ended, and the error otherwise.
func silence(ctx context.Context, err error) error {
	if silent, ok := errors.AsType[noAnswer](context.Cause(ctx)); ok {
		return silent
	}
	return err
}

// noAnswer is the error of a call that the daemon did not answer in time. It matches
// ErrNoAnswer and ErrUnavailable.
type noAnswer struct{ limit time.Duration }

func (n noAnswer) Error() string {
	return fmt.Sprintf("docker daemon accepts requests and did not answer one within %s (look at its log; restart it if it hangs)", n.limit)
}

// Is implements what errors.Is asks for.
func (n noAnswer) Is(target error) bool { return target == ErrNoAnswer || target == ErrUnavailable }

// attachment is the connection of an exec. The client writes to it and reads from it
// without regard to a context, so that only closing it ends a wait for the daemon.
type attachment struct {
	mu    sync.Mutex
	conn  net.Conn
	ended bool
}

type attachmentKey struct{}

// dialing notes the connections that are made for an attachment.
func dialing(dial func(ctx context.Context, network, address string) (net.Conn, error),
) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if a, ok := ctx.Value(attachmentKey{}).(*attachment); ok && err == nil {
			a.take(conn)
		}
		return conn, err
	}
}

func (a *attachment) take(conn net.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conn = conn
	if a.ended {
		_ = conn.Close()
	}
}

func (a *attachment) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	if a.conn != nil {
		_ = a.conn.Close()
	}
}

// attach calls a function of the API that takes a connection over, and gives the
// daemon the time of every other call to agree to that.
func attach[T any](ctx context.Context, limit time.Duration, call func(context.Context) (T, error)) (T, error) {
	waiting, stop := context.WithTimeoutCause(ctx, limit, noAnswer{limit})
	defer stop()
	made := &attachment{}
	agreed := context.AfterFunc(waiting, made.end)
	got, err := call(context.WithValue(waiting, attachmentKey{}, made))
	if !agreed() && err == nil {
		err = context.Cause(waiting) // the connection is closed by now, or in a moment
	}
	if err != nil {
		err = silence(waiting, err)
	}
	return got, err
}
