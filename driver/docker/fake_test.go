// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/docker/docker/api/types/registry"
)

// fakeDaemon speaks as much of the Engine API as a pull needs. There is no registry in these tests; what a daemon says of one
// is written by hand.
type fakeDaemon struct {
	// create answers POST /images/create: it writes the daemon's messages with say, and may wait for ctx to end.
	create func(ctx context.Context, say func(string, ...any))

	version string // of its API; empty means 1.44

	mu      sync.Mutex
	present map[string]bool         // images that are there
	pulls   []string                // every pull, as name:tag
	auths   []registry.AuthConfig   // what came with them
	handler map[string]http.Handler // further answers, by "METHOD /path"
}

// start serves the fake daemon and returns a client for it.
func (d *fakeDaemon) start(t *testing.T, cfg Config) *Client {
	t.Helper()
	if d.present == nil {
		d.present = map[string]bool{}
	}
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	cfg.Endpoint = "tcp://" + strings.TrimPrefix(server.URL, "http://")
	return newClient(t, cfg)
}

func (d *fakeDaemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Api-Version", cmp.Or(d.version, "1.44"))
	_, path, versioned := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case !versioned: // /_ping
	case d.handler[r.Method+" /"+path] != nil:
		d.handler[r.Method+" /"+path].ServeHTTP(w, r)
	case r.Method == http.MethodPost && path == "images/create":
		d.pull(w, r)
	case strings.HasPrefix(path, "images/") && strings.HasSuffix(path, "/json"):
		d.inspect(w, strings.TrimSuffix(strings.TrimPrefix(path, "images/"), "/json"))
	default:
		http.Error(w, `{"message":"not in this fake"}`, http.StatusNotImplemented)
	}
}

func (d *fakeDaemon) pull(w http.ResponseWriter, r *http.Request) {
	name := r.FormValue("fromImage") + ":" + r.FormValue("tag")
	auth, err := registry.DecodeAuthConfig(r.Header.Get(registry.AuthHeader))
	if err != nil {
		http.Error(w, `{"message":"bad X-Registry-Auth"}`, http.StatusBadRequest)
		return
	}
	d.mu.Lock()
	d.pulls = append(d.pulls, name)
	d.auths = append(d.auths, *auth)
	d.mu.Unlock()
	failed := false
	d.create(r.Context(), func(format string, args ...any) {
		message := fmt.Sprintf(format, args...)
		failed = failed || strings.Contains(message, "errorDetail")
		fmt.Fprintln(w, message)
		w.(http.Flusher).Flush()
	})
	if !failed && r.Context().Err() == nil {
		d.mu.Lock()
		d.present[name] = true
		d.mu.Unlock()
	}
}

func (d *fakeDaemon) inspect(w http.ResponseWriter, name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.present[name] {
		http.Error(w, `{"message":"No such image: `+name+`"}`, http.StatusNotFound)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"Id": "id of " + name, "Config": map[string]any{"User": "web"}})
}

func (d *fakeDaemon) pulled() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string{}, d.pulls...)
}

func (d *fakeDaemon) credentials() []registry.AuthConfig {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]registry.AuthConfig{}, d.auths...)
}
