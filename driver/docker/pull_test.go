// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/registry"
	"github.com/shoenig/test/must"
)

// pulling answers a pull that goes well.
func pulling(_ context.Context, say func(string, ...any)) {
	say(`{"status":"Pulling from library/redis","id":"7"}`)
	say(`{"status":"Pulling fs layer","progressDetail":{},"id":"a"}`)
	say(`{"status":"Pull complete","progressDetail":{},"id":"a"}`)
}

// stalled answers a pull that says one thing and then no more.
func stalled(ctx context.Context, say func(string, ...any)) {
	say(`{"status":"Downloading","progressDetail":{"current":100,"total":400},"id":"a"}`)
	<-ctx.Done()
}

func TestEnsureImageDecision(t *testing.T) {
	t.Parallel()
	const fixed, latest = "docker.io/library/redis:7", "docker.io/library/redis:latest"
	for _, tc := range []struct {
		name    string
		ref     string
		force   bool
		present string
		want    []string // pulls
	}{
		{"fixed and there", "redis:7", false, fixed, nil},
		{"fixed and not there", "redis:7", false, "", []string{fixed}},
		{"forced", "redis:7", true, fixed, []string{fixed}},
		{"latest by default", "redis", false, latest, []string{latest}},
		{"latest", "redis:latest", false, latest, []string{latest}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			daemon := &fakeDaemon{create: pulling, present: map[string]bool{tc.present: true}}
			img, err := daemon.start(t, Config{}).EnsureImage(t.Context(), PullRequest{Ref: tc.ref, Force: tc.force})
			must.NoError(t, err)
			must.StrHasPrefix(t, "id of docker.io/library/redis:", img.ID)
			must.Eq(t, "web", img.User)
			must.SliceContainsAll(t, tc.want, daemon.pulled())
		})
	}
}

func TestEnsureImageWithoutItsArchive(t *testing.T) {
	t.Parallel()
	missing := errors.New("no such file")
	req := PullRequest{Ref: "team/app", Force: true, Load: func() (io.ReadCloser, error) { return nil, missing }}
	_, err := (&fakeDaemon{create: pulling}).start(t, Config{}).EnsureImage(t.Context(), req)
	must.ErrorIs(t, err, missing)
	must.ErrorIs(t, err, ErrImage)
}

func TestEnsureImageByIDIsNotPulled(t *testing.T) {
	t.Parallel()
	daemon := &fakeDaemon{create: pulling}
	_, err := daemon.start(t, Config{}).EnsureImage(t.Context(), PullRequest{Ref: "sha256:" + strings.Repeat("ab", 32)})
	must.ErrorIs(t, err, ErrImage)
	must.ErrorContains(t, err, "image ID")
	must.SliceEmpty(t, daemon.pulled())
}

func TestPullFailsInItsMessages(t *testing.T) {
	t.Parallel()
	daemon := &fakeDaemon{create: func(_ context.Context, say func(string, ...any)) {
		say(`{"status":"Pulling from library/redis","id":"7"}`)
		say(`{"errorDetail":{"message":"toomanyrequests: You have reached your pull rate limit."},"error":"toomanyrequests"}`)
	}}
	_, err := daemon.start(t, Config{}).EnsureImage(t.Context(), PullRequest{Ref: "redis:7"})
	must.ErrorIs(t, err, ErrImage)
	must.True(t, Recoverable(err))
	must.ErrorContains(t, err, "docker.io/library/redis:7")
	must.ErrorContains(t, err, "toomanyrequests")
}

// A pull that fails before its first message does so with a status, and a daemon that goes down breaks off. Neither may
// leave a caller waiting.
func TestPullFailsOtherwise(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		want   error
		words  string
	}{
		"rate limit": {answer(http.StatusTooManyRequests, `{"message":"toomanyrequests: You have reached your pull rate limit."}`), ErrImage, "toomanyrequests"},
		"no registry": {answer(http.StatusInternalServerError, `{"message":"Get https://r.example/v2/: dial tcp: no such host"}`),
			ErrImage, "no such host"},
		"not found": {answer(http.StatusNotFound, `{"message":"pull access denied for redis, repository does not exist"}`), ErrImage, "does not exist"},
		"broken off": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"status":"Downloading","progressDetail":{"current":1,"total":4},"id":"a"}`+"\n")
			w.(http.Flusher).Flush()
			dropped(w, r)
		}, ErrUnavailable, "redis:7"},
		"nonsense": {answer(http.StatusOK, `<html>proxy</html>`), ErrImage, "redis:7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			daemon := &fakeDaemon{handler: map[string]http.Handler{"POST /images/create": tc.answer}}
			_, err := daemon.start(t, Config{}).EnsureImage(t.Context(), PullRequest{Ref: "redis:7"})
			must.ErrorIs(t, err, tc.want)
			must.ErrorContains(t, err, tc.words)
			must.True(t, Recoverable(err))
		})
	}
}

func TestPullTimeouts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		req   PullRequest
		words string
	}{
		{"no news", PullRequest{IdleTimeout: 20 * time.Millisecond}, "pull_activity_timeout"},
		{"the whole", PullRequest{Timeout: 20 * time.Millisecond}, "image_pull_timeout"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			daemon := &fakeDaemon{create: stalled}
			tc.req.Ref = "redis:7"
			_, err := daemon.start(t, Config{}).EnsureImage(t.Context(), tc.req)
			must.ErrorIs(t, err, ErrImage)
			must.True(t, Recoverable(err))
			must.ErrorContains(t, err, tc.words)
		})
	}
}

func TestPullThatTalksIsNotIdle(t *testing.T) {
	t.Parallel()
	const idle = 400 * time.Millisecond
	daemon := &fakeDaemon{create: func(ctx context.Context, say func(string, ...any)) {
		tick := time.NewTicker(idle / 8)
		defer tick.Stop()
		for range 16 { // twice the idle timeout
			select {
			case <-tick.C:
				say(`{"status":"Extracting","progressDetail":{"current":1},"id":"a"}`)
			case <-ctx.Done():
				return
			}
		}
	}}
	_, err := daemon.start(t, Config{}).EnsureImage(t.Context(), PullRequest{Ref: "redis:7", IdleTimeout: idle})
	must.NoError(t, err)
}

func TestPullProgress(t *testing.T) {
	t.Parallel()
	told := make(chan string, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	daemon := &fakeDaemon{create: stalled}
	_, err := daemon.start(t, Config{}).EnsureImage(ctx, PullRequest{Ref: "redis:7", Progress: func(msg string) {
		if strings.Contains(msg, "100B/400B") {
			select {
			case told <- msg:
			default:
			}
			cancel()
		}
	}})
	must.ErrorIs(t, err, context.Canceled)
	must.StrHasPrefix(t, "Docker image pull progress: Pulled 0/1 (100B/400B) layers: 0 waiting/1 pulling - est ", <-told)
}

// TestPullsAreShared lets the daemon finish only when ten callers wait, or have waited.
func TestPullsAreShared(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	daemon := &fakeDaemon{create: func(ctx context.Context, say func(string, ...any)) {
		select {
		case <-release:
			pulling(ctx, say)
		case <-ctx.Done():
		}
	}}
	c := daemon.start(t, Config{})

	// ensure waits in the background. It returns after its first progress message, which every waiting caller gets.
	ensure := func(ctx context.Context) <-chan error {
		waits, result := make(chan struct{}), make(chan error, 1)
		var once sync.Once
		go func() {
			_, err := c.EnsureImage(ctx, PullRequest{Ref: "redis:7", Progress: func(msg string) {
				if strings.HasPrefix(msg, "Docker image pull progress") {
					once.Do(func() { close(waits) })
				}
			}})
			result <- err
		}()
		<-waits
		return result
	}
	// The first comes and goes; that must not take the pull from the others.
	ctx, leave := context.WithCancel(t.Context())
	first := ensure(ctx)
	var others []<-chan error
	for range 9 {
		others = append(others, ensure(t.Context()))
	}
	leave()
	must.ErrorIs(t, <-first, context.Canceled)
	close(release)
	for _, result := range others {
		must.NoError(t, <-result)
	}
	must.Eq(t, []string{"docker.io/library/redis:7"}, daemon.pulled())

	// Nothing of it is remembered.
	_, err := c.EnsureImage(t.Context(), PullRequest{Ref: "redis:7", Force: true})
	must.NoError(t, err)
	must.Len(t, 2, daemon.pulled())
}

func TestPullEndsWithItsLastWaiter(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	daemon := &fakeDaemon{create: func(ctx context.Context, say func(string, ...any)) {
		stalled(ctx, say)
		close(ended)
	}}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := daemon.start(t, Config{}).EnsureImage(ctx, PullRequest{Ref: "redis:7", Progress: func(msg string) {
		if strings.Contains(msg, "100B/400B") {
			cancel()
		}
	}})
	must.ErrorIs(t, err, context.Canceled)
	<-ended
}

func TestPullCredentials(t *testing.T) {
	t.Parallel()
	file := writeFile(t, `{"auths":{"r.example":{"identitytoken":"tok+/="}}}`)
	daemon := &fakeDaemon{create: pulling}
	c := daemon.start(t, Config{AuthConfigFile: file})
	for _, req := range []PullRequest{
		{Ref: "r.example/app:1"},
		{Ref: "r.example/app:2", Auth: &Auth{Username: "u", Password: "p?>"}},
		{Ref: "redis:7"},
	} {
		_, err := c.EnsureImage(t.Context(), req)
		must.NoError(t, err)
	}
	must.Eq(t, []registry.AuthConfig{
		{IdentityToken: "tok+/=", ServerAddress: "r.example"},
		{Username: "u", Password: "p?>"},
		{},
	}, daemon.credentials())
}

func TestPullWithoutTheCredentialsItNeeds(t *testing.T) {
	t.Parallel()
	daemon := &fakeDaemon{create: pulling}
	c := daemon.start(t, Config{AuthConfigFile: "/is/not/there"})
	c.timing.progressEvery = time.Hour
	_, err := c.EnsureImage(t.Context(), PullRequest{Ref: "r.example/app:1"})
	must.ErrorIs(t, err, ErrImage)
	must.ErrorContains(t, err, "r.example")
	must.SliceEmpty(t, daemon.pulled())

	var told []string
	_, err = c.EnsureImage(t.Context(), PullRequest{Ref: "r.example/app:1", AuthSoftFail: true,
		Progress: func(msg string) { told = append(told, msg) }})
	must.NoError(t, err)
	must.SliceLen(t, 2, told)
	must.StrContains(t, told[0], "anonymously")
	must.Eq(t, "Downloading image", told[1])
}

func TestDaemonAway(t *testing.T) {
	t.Parallel()
	c := newClient(t, Config{Endpoint: "unix:///is/not/there.sock"})
	_, err := c.EnsureImage(t.Context(), PullRequest{Ref: "redis:7"})
	must.ErrorIs(t, err, ErrUnavailable)
	_, err = c.Info(t.Context())
	must.ErrorIs(t, err, ErrUnavailable)
	_, err = c.Create(t.Context(), Spec{Name: "x"})
	must.ErrorIs(t, err, ErrUnavailable)
	must.ErrorIs(t, c.Start(t.Context(), "x"), ErrUnavailable)
	must.ErrorIs(t, c.Signal(t.Context(), "x", "HUP"), ErrUnavailable)
}

// A time limit of the client's own would cut off stops, waits, logs and pulls alike.
func TestClientHasNoTimeLimit(t *testing.T) {
	t.Parallel()
	for _, cfg := range []Config{{}, {Endpoint: "tcp://127.0.0.1:1"}, {Endpoint: "unix:///is/not/there.sock"}} {
		c, err := New(cfg)
		must.NoError(t, err)
		must.Zero(t, c.sessions.get().api.HTTPClient().Timeout)
		must.NoError(t, c.Close())
	}
}

// An engine refuses versions of its API that it does not speak, old or new, also one that endpoint leads to.
func TestVersionIsNegotiated(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"1.41", "1.44"} {
		daemon := &fakeDaemon{version: version, handler: map[string]http.Handler{
			"GET /info": answer(http.StatusOK, `{"ID":"e"}`),
		}}
		c := daemon.start(t, Config{})
		_, err := c.ID(t.Context())
		must.NoError(t, err)
		must.Eq(t, version, c.sessions.get().api.ClientVersion())
	}
}

func TestNewRefusesBadTLSFiles(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Endpoint: "tcp://127.0.0.1:1", Cert: "/is/not/there", Key: "/is/not/there", CA: "/is/not/there"})
	must.ErrorContains(t, err, "tcp://127.0.0.1:1")
	must.ErrorContains(t, err, "/is/not/there")
}
