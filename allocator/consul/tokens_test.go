// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package consul_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/consul"
)

// gate is a Consul that accepts one token only.
type gate struct {
	mu       sync.Mutex
	valid    string
	onDenied func() // before the answer
}

func (g *gate) accept(token string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.valid = token
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.Header.Get("X-Consul-Token") != g.valid {
		if g.onDenied != nil {
			g.onDenied()
		}
		status(http.StatusForbidden, "ACL not found")(w, r)
		return
	}
	w.Header().Set("X-Consul-Index", "1")
	_, _ = w.Write([]byte("[]"))
}

func writeToken(t *testing.T, file, token string) {
	t.Helper()
	must.NoError(t, os.WriteFile(file+".new", []byte(token+"\n"), 0o600))
	must.NoError(t, os.Rename(file+".new", file))
}

// notices collects the store's messages to an operator.
type notices struct {
	mu  sync.Mutex
	all []string
}

func (n *notices) add(msg string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, msg)
}

func (n *notices) list() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.all
}

func withTokenFile(t *testing.T, g *gate, file string, got *notices) *consul.Store {
	t.Helper()
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	store, err := consul.New(consul.Config{Address: server.URL, TokenFile: file, Notify: got.add})
	must.NoError(t, err)
	t.Cleanup(func() { must.NoError(t, store.Close()) })
	return store
}

func TestStore_uses_a_renewed_token(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	writeToken(t, file, "first")
	g, got := &gate{valid: "first"}, &notices{}
	store := withTokenFile(t, g, file, got)
	for _, call := range calls(store) {
		must.NoError(t, call(t.Context()))
	}
	must.SliceEmpty(t, got.list())

	writeToken(t, file, "second")
	g.accept("second")
	for name, call := range calls(store) {
		must.NoError(t, call(t.Context()), must.Sprint(name))
	}
	must.Eq(t, []string{"using the new Consul token in " + file}, got.list())
}

// The file changes while a request with the old token is under way.
func TestStore_repeats_a_refused_request_with_a_renewed_token(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"get", "watch", "apply"} {
		file := filepath.Join(t.TempDir(), "token")
		writeToken(t, file, "first")
		g := &gate{valid: "second", onDenied: func() { writeToken(t, file, "second") }}
		store := withTokenFile(t, g, file, &notices{})
		must.NoError(t, calls(store)[name](t.Context()), must.Sprint(name))
	}
}

func TestStore_refused_token_that_stays(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	writeToken(t, file, secret)
	store := withTokenFile(t, &gate{valid: "another"}, file, &notices{})
	for _, call := range calls(store) {
		err := call(t.Context())
		must.ErrorIs(t, err, allocator.ErrDenied)
		must.StrContains(t, err.Error(), "Consul does not know the token")
		must.StrNotContains(t, err.Error(), secret)
	}
}

// Without a token yet the table is unavailable; a token that was read outlives its file.
func TestStore_token_file_that_cannot_be_read(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	g, got := &gate{valid: "first"}, &notices{}
	store := withTokenFile(t, g, file, got)
	for name, call := range calls(store) {
		err := call(t.Context())
		must.ErrorIs(t, err, allocator.ErrUnavailable, must.Sprint(name))
		must.ErrorContains(t, err, file)
	}
	writeToken(t, file, "first")
	for _, call := range calls(store) {
		must.NoError(t, call(t.Context()))
	}
	must.NoError(t, os.Truncate(file, 0)) // a program that writes it in place
	for _, call := range calls(store) {
		must.NoError(t, call(t.Context()))
	}
	must.Len(t, 1, got.list())
	must.StrContains(t, got.list()[0], file+" is empty")
}

func TestStore_token_precedence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	writeToken(t, file, "from the variable's file")
	t.Setenv("CONSUL_HTTP_TOKEN", "from the variable")
	own := filepath.Join(t.TempDir(), "own")
	writeToken(t, own, "from the configuration's file")
	for _, test := range []struct {
		config    consul.Config
		env, want string
	}{
		{consul.Config{}, "", "from the variable"},
		{consul.Config{}, file, "from the variable's file"},
		{consul.Config{Token: "from the configuration"}, file, "from the configuration"},
		{consul.Config{TokenFile: own}, file, "from the configuration's file"},
		{consul.Config{TokenFile: own}, "/nowhere/token", "from the configuration's file"},
	} {
		t.Setenv("CONSUL_HTTP_TOKEN_FILE", test.env)
		server := httptest.NewServer(&gate{valid: test.want})
		test.config.Address = server.URL
		store, err := consul.New(test.config)
		must.NoError(t, err)
		must.NoError(t, calls(store)["get"](t.Context()), must.Sprint(test.want))
		must.NoError(t, store.Close())
		server.Close()
	}
}
