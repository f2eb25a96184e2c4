// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/docker/docker/api"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/versions"
	"github.com/docker/docker/client"
	"github.com/shoenig/test/must"
)

// upgradable is a daemon that serves a range of API versions, which an upgrade of Docker changes.
type upgradable struct {
	daemon *fakeDaemon

	mu          sync.Mutex
	least, most string
	served      []string // versions of the requests that it took
}

func (u *upgradable) become(least, most string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.least, u.most, u.served = least, most, nil
}

// last is the version of the last request that was not refused.
func (u *upgradable) last(t *testing.T) string {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	must.SliceNotEmpty(t, u.served)
	return u.served[len(u.served)-1]
}

// ServeHTTP refuses what a real daemon refuses, in its words.
func (u *upgradable) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	defer u.mu.Unlock()
	refusal := ""
	if rest, versioned := strings.CutPrefix(r.URL.Path, "/v"); versioned {
		first, _, _ := strings.Cut(rest, "/")
		switch {
		case versions.LessThan(first, u.least):
			refusal = fmt.Sprintf("client version %s is too old. Minimum supported API version is %s, please upgrade your client "+
				"to a newer version", first, u.least)
		case versions.GreaterThan(first, u.most):
			refusal = fmt.Sprintf("client version %s is too new. Maximum supported API version is %s", first, u.most)
		default:
			u.served = append(u.served, first)
		}
	}
	u.daemon.version = u.most
	if refusal != "" {
		w.Header().Set("Api-Version", u.most)
		answer(http.StatusBadRequest, `{"message":"`+refusal+`"}`)(w, r)
		return
	}
	u.daemon.ServeHTTP(w, r)
}

// start serves the daemon, as one of Docker 24 at first.
func (u *upgradable) start(t *testing.T) *Client {
	t.Helper()
	u.daemon = &fakeDaemon{present: map[string]bool{"redis:7": true}, handler: map[string]http.Handler{
		"GET /info":                answer(http.StatusOK, `{"ID":"engine"}`),
		"GET /networks/bridge":     answer(http.StatusOK, `{}`),
		"GET /containers/json":     answer(http.StatusOK, `[]`),
		"GET /containers/x/json":   answer(http.StatusOK, `{"Id":"x","State":{"Status":"exited","ExitCode":3}}`),
		"POST /containers/x/wait":  answer(http.StatusOK, `{"StatusCode":3}`),
		"POST /containers/x/kill":  answer(http.StatusNoContent, ""),
		"POST /containers/create":  answer(http.StatusCreated, `{"Id":"x"}`),
		"POST /containers/x/start": answer(http.StatusNoContent, ""),
	}}
	u.become("1.12", "1.43")
	server := httptest.NewServer(u)
	t.Cleanup(server.Close)
	return newClient(t, Config{Endpoint: "tcp://" + strings.TrimPrefix(server.URL, "http://")})
}

// Docker is upgraded or downgraded under a running plugin: no call notices.
func TestEngineIsReplacedByOneOfAnotherVersion(t *testing.T) {
	t.Parallel()
	calls := map[string]func(context.Context, *Client) error{
		"info":    func(ctx context.Context, c *Client) error { _, err := c.Info(ctx); return err },
		"inspect": func(ctx context.Context, c *Client) error { _, err := c.Inspect(ctx, "x"); return err },
		"list":    func(ctx context.Context, c *Client) error { _, err := c.List(ctx, nil); return err },
		"wait":    func(ctx context.Context, c *Client) error { _, err := c.Wait(ctx, "x"); return err },
		"signal":  func(ctx context.Context, c *Client) error { return c.Signal(ctx, "x", "SIGHUP") },
		"start":   func(ctx context.Context, c *Client) error { return c.Start(ctx, "x") },
		"create": func(ctx context.Context, c *Client) error {
			_, err := c.Create(ctx, Spec{Name: "x", Config: &container.Config{}, Host: &container.HostConfig{}})
			return err
		},
	}
	for name, call := range calls {
		for _, step := range []struct{ name, least, most, want string }{
			{"upgrade that refuses the old version", "1.44", "1.52", api.DefaultVersion},
			{"upgrade", "1.24", "1.48", "1.48"},
			{"downgrade", "1.12", "1.41", "1.41"},
		} {
			t.Run(name+"/"+step.name, func(t *testing.T) {
				t.Parallel()
				daemon := &upgradable{}
				c := daemon.start(t)
				must.NoError(t, call(t.Context(), c))
				must.Eq(t, "1.43", daemon.last(t))
				daemon.become(step.least, step.most)
				must.NoError(t, call(t.Context(), c))
				must.NoError(t, call(t.Context(), c))
				must.Eq(t, step.want, daemon.last(t))
			})
		}
	}
}

// Many calls at a time find the other engine at once.
func TestEngineIsReplacedUnderManyCalls(t *testing.T) {
	t.Parallel()
	daemon := &upgradable{}
	c := daemon.start(t)
	_, err := c.Info(t.Context())
	must.NoError(t, err)
	daemon.become("1.44", "1.52")
	failed := make(chan error, 20)
	for range cap(failed) {
		go func() {
			_, err := c.Inspect(t.Context(), "x")
			failed <- err
		}()
	}
	for range cap(failed) {
		must.NoError(t, <-failed)
	}
}

// With an engine that shares no version with this plugin nothing is known of any container, and the error says what to do.
func TestEngineWithoutACommonVersion(t *testing.T) {
	t.Parallel()
	daemon := &upgradable{}
	c := daemon.start(t)
	daemon.become("1.90", "1.99")
	_, err := c.Info(t.Context())
	must.ErrorIs(t, err, ErrVersion)
	must.ErrorIs(t, err, ErrUnavailable)
	must.ErrorContains(t, err, "min-api-version")
	must.ErrorContains(t, err, "1.90")
	must.False(t, errors.Is(err, ErrNotFound))
	daemon.become("1.24", "1.48")
	_, err = c.Info(t.Context())
	must.NoError(t, err)
}

// A version that the agent's environment fixes holds as long as the engine takes it.
func TestVersionFromTheEnvironment(t *testing.T) {
	daemon := &upgradable{}
	probe := daemon.start(t)
	t.Setenv(client.EnvOverrideHost, probe.config.Endpoint)
	t.Setenv(client.EnvOverrideAPIVersion, "1.41")
	c := newClient(t, Config{})
	_, err := c.Info(t.Context())
	must.NoError(t, err)
	must.Eq(t, "1.41", daemon.last(t))
	daemon.become("1.24", "1.48")
	_, err = c.Info(t.Context())
	must.NoError(t, err)
	must.Eq(t, "1.41", daemon.last(t))
	daemon.become("1.44", "1.52")
	_, err = c.Info(t.Context())
	must.NoError(t, err)
	must.Eq(t, api.DefaultVersion, daemon.last(t))
}
