// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/client"
)

// session is an API client and the API version that it agreed on with the daemon. It does so once, with its first call; the
// engine behind an endpoint can become another one, as when Docker is upgraded under its containers. Then another session
// takes over, so that calls neither fail for good nor keep to the older engine's version.
type session struct {
	api   *client.Client
	offer *offer
}

// sessions holds the session in use.
type sessions struct {
	config Config

	mu      sync.Mutex
	current *session
	fixed   bool // keep to the version in DOCKER_API_VERSION, if there is one
}

func openSessions(cfg Config) (*sessions, error) {
	first, err := connect(cfg, true)
	if err != nil {
		return nil, err
	}
	return &sessions{config: cfg, current: first, fixed: true}, nil
}

// get returns the session in use. One whose daemon has begun to offer another version is replaced first.
func (s *sessions) get() *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current.offer.changed.Load() {
		s.renew()
	}
	return s.current
}

// refused returns a session in place of one whose version the daemon refuses. A version fixed by the environment gives way:
// with it, nothing on this node could be started or stopped any more.
func (s *sessions) refused(old *session) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == old {
		s.fixed = false
		s.renew()
	}
	return s.current
}

// renew replaces the session. It keeps the old one if that fails, as while the files for TLS are being replaced: the next
// call tries again. s.mu is held.
func (s *sessions) renew() {
	next, err := connect(s.config, s.fixed)
	if err != nil {
		return
	}
	_ = s.current.api.Close() // calls in flight have their connections until they end
	s.current = next
}

func (s *sessions) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current.api.Close()
}

// ask calls the daemon. If the daemon refuses the API version, and so has done nothing, the call is made once more by a
// session that has agreed on another.
func ask[T any](c *Client, call func(api *client.Client) (T, error)) (T, error) {
	current := c.sessions.get()
	answer, err := call(current.api)
	if refusesVersion(err) {
		answer, err = call(c.sessions.refused(current).api)
	}
	if refusesVersion(err) {
		err = noVersion{err}
	}
	return answer, err
}

// do is ask for calls without an answer.
func do(c *Client, call func(api *client.Client) error) error {
	_, err := ask(c, func(api *client.Client) (struct{}, error) { return struct{}{}, call(api) })
	return err
}

// refusesVersion reports whether the daemon refused a call for its API version alone.
func refusesVersion(err error) bool {
	if err == nil || !cerrdefs.IsInvalidArgument(err) {
		return false
	}
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "client version") && (strings.Contains(text, "too old") || strings.Contains(text, "too new"))
}

// offer watches which API version a daemon offers: each of its answers says so.
type offer struct {
	next    http.RoundTripper
	version atomic.Pointer[string]
	changed atomic.Bool
}

// RoundTrip implements http.RoundTripper.
func (o *offer) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := o.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if version := resp.Header.Get("Api-Version"); version != "" {
		if before := o.version.Swap(&version); before != nil && *before != version {
			o.changed.Store(true)
		}
	}
	return resp, nil
}

// noVersion is the error of a call whose API version the daemon refuses although it was negotiated just before. It matches
// ErrVersion, and ErrUnavailable: nothing is known of the containers of an unreachable engine.
type noVersion struct{ said error }

func (n noVersion) Error() string { return fmt.Sprintf("%v: %v", ErrVersion, n.said) }

// Is implements what errors.Is asks for.
func (n noVersion) Is(target error) bool { return target == ErrVersion || target == ErrUnavailable }

// Unwrap returns what the daemon said.
func (n noVersion) Unwrap() error { return n.said }
