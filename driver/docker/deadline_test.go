// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/shoenig/test/must"
)

// soon is when a daemon must have answered in these tests.
const soon = 100 * time.Millisecond

// silentAfter answers with the beginning of an answer and then says nothing more.
func silentAfter(beginning string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write([]byte(beginning))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
}

// Every call on a daemon that accepts connections and says nothing ends, with an error that Nomad takes for the client's
// trouble and not for the job's.
func TestDaemonThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	spec := Spec{Name: "x", Config: &container.Config{}, MAC: "02:42:ac:11:00:02", Host: &container.HostConfig{}}
	for name, call := range map[string]func(context.Context, *Client) error{
		"id":      func(ctx context.Context, c *Client) error { _, err := c.ID(ctx); return err },
		"info":    func(ctx context.Context, c *Client) error { _, err := c.Info(ctx); return err },
		"create":  func(ctx context.Context, c *Client) error { _, err := c.Create(ctx, spec); return err },
		"start":   func(ctx context.Context, c *Client) error { return c.Start(ctx, "x") },
		"inspect": func(ctx context.Context, c *Client) error { _, err := c.Inspect(ctx, "x"); return err },
		"list":    func(ctx context.Context, c *Client) error { _, err := c.List(ctx, nil); return err },
		"signal":  func(ctx context.Context, c *Client) error { return c.Signal(ctx, "x", "SIGHUP") },
		"CPUs":    func(ctx context.Context, c *Client) error { return c.SetCPUs(ctx, "x", "0") },
		"stats":   func(ctx context.Context, c *Client) error { _, err := c.Stats(ctx, "x"); return err },
		"exec":    func(ctx context.Context, c *Client) error { _, err := c.Exec(ctx, "x", []string{"ls"}, 10); return err },
		"image":   func(ctx context.Context, c *Client) error { return c.RemoveImage(ctx, "sha256:1") },
		"pull": func(ctx context.Context, c *Client) error {
			_, err := c.EnsureImage(ctx, PullRequest{Ref: "redis:7"})
			return err
		},
		"sandbox": func(ctx context.Context, c *Client) error {
			_, _, err := c.CreateSandbox(ctx, SandboxSpec{Name: "s"})
			return err
		},
		"no sandbox": func(ctx context.Context, c *Client) error { return c.RemoveSandbox(ctx, "s") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(hang)) // also to the question for its version
			t.Cleanup(server.Close)
			c := newClient(t, Config{
				Endpoint: "tcp://" + strings.TrimPrefix(server.URL, "http://"), InfraImage: "pause:1", AnswerTimeout: soon,
			})
			c.timing.removeGrace = time.Hour
			err := call(t.Context(), c)
			must.ErrorIs(t, err, ErrNoAnswer)
			must.ErrorIs(t, err, ErrUnavailable)
			must.False(t, errors.Is(err, ErrStuck))
			must.True(t, Recoverable(err))
			must.ErrorContains(t, err, "did not answer one within 100ms (look at its log; restart it if it hangs)")
		})
	}
}

// An answer has to end in time as well, and an exec has to be agreed to.
func TestAnswerThatBreaksOff(t *testing.T) {
	t.Parallel()
	daemon := &fakeDaemon{handler: map[string]http.Handler{
		"GET /containers/x/json":  silentAfter(`{"Id":"x",`),
		"GET /containers/x/stats": silentAfter(`{"read":`),
		"POST /containers/x/exec": answer(http.StatusCreated, `{"Id":"e"}`),
		"POST /exec/e/start":      http.HandlerFunc(hang),
	}}
	c := daemon.start(t, Config{AnswerTimeout: soon})
	_, err := c.Inspect(t.Context(), "x")
	must.ErrorIs(t, err, ErrNoAnswer)
	_, err = c.Stats(t.Context(), "x")
	must.ErrorIs(t, err, ErrNoAnswer)
	_, err = c.Exec(t.Context(), "x", []string{"ls"}, 10)
	must.ErrorIs(t, err, ErrNoAnswer)

	// The caller's own end is not the daemon's silence.
	ended, end := context.WithTimeout(t.Context(), soon/2)
	defer end()
	patient := daemon.start(t, Config{})
	_, err = patient.Inspect(ended, "x")
	must.ErrorIs(t, err, context.DeadlineExceeded)
	must.False(t, errors.Is(err, ErrUnavailable))
	_, err = patient.Exec(ended, "x", []string{"ls"}, 10)
	must.ErrorIs(t, err, context.DeadlineExceeded)
}

// What waits for a container or an image takes as long as they do.
func TestLongCallsAreNotCutOff(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second // of the calls between them, which a busy machine answers late
	slow := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-time.After(2 * limit):
				answer(http.StatusOK, body)(w, r)
			case <-r.Context().Done():
			}
		}
	}
	daemon := &fakeDaemon{
		handler: map[string]http.Handler{
			"POST /containers/x/wait": slow(`{"StatusCode":0}`),
			"POST /containers/x/stop": slow(""),
			"GET /containers/x/logs":  slow(""),
			"GET /containers/x/json":  answer(http.StatusOK, `{"Id":"x","State":{"Status":"exited"}}`),
		},
		create: func(ctx context.Context, say func(string, ...any)) {
			say(`{"status":"Pulling fs layer","id":"a"}`)
			select {
			case <-time.After(2 * limit):
				say(`{"status":"done"}`)
			case <-ctx.Done():
			}
		},
	}
	c := daemon.start(t, Config{AnswerTimeout: limit})
	for name, call := range map[string]func(context.Context) error{
		"wait": func(ctx context.Context) error { _, err := c.Wait(ctx, "x"); return err },
		"stop": func(ctx context.Context) error { return c.Stop(ctx, "x", "", time.Minute) },
		"logs": func(ctx context.Context) error {
			ignore := func(LogMark, []byte) error { return nil }
			return c.Logs(ctx, "x", LogPosition{}, false, ignore, ignore)
		},
		"pull": func(ctx context.Context) error {
			_, err := c.EnsureImage(ctx, PullRequest{Ref: "redis:7"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			must.NoError(t, call(t.Context()))
			must.GreaterEq(t, 2*limit, time.Since(begun))
		})
	}
}
