// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package consul_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shoenig/test/must"
	"go.uber.org/goleak"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/consul"
	"nomad-gpu-mem/allocator/storetest"
)

func TestMain(m *testing.M) {
	storetest.ClientMain(func(where string) (allocator.Store, error) {
		address, prefix, _ := strings.Cut(where, " ")
		return consul.New(consul.Config{Address: address, Prefix: prefix})
	})
	goleak.VerifyTestMain(m)
}

const secret = "5ec4e700-0000-4000-8000-000000000000"

// answering returns a store with the handler as its Consul.
func answering(t *testing.T, token string, handler http.HandlerFunc) (store *consul.Store, address string) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	store, err := consul.New(consul.Config{Address: server.URL, Token: token})
	must.NoError(t, err)
	t.Cleanup(func() { must.NoError(t, store.Close()) })
	return store, server.Listener.Addr().String()
}

func status(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
}

// calls are all calls of a store.
func calls(store allocator.Store) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"get": func(ctx context.Context) error {
			_, err := store.Get(ctx, "key")
			return err
		},
		"watch": func(ctx context.Context) error {
			_, _, err := store.Watch(ctx, 0)
			return err
		},
		"apply": func(ctx context.Context) error {
			return store.Apply(ctx, []allocator.Write{{Key: "key", Value: []byte("1")}})
		},
	}
}

func TestStore_explains_answers(t *testing.T) {
	t.Parallel()
	const lacks = "Permission denied: token with AccessorID '1' lacks permission 'key:...' on \"gpu-mem/key\""
	tests := []struct {
		name  string
		token string
		code  int
		body  string
		want  error
		says  string
	}{
		{"no token", "", 403, "Permission denied: anonymous token lacks permission", allocator.ErrDenied, "no token is set"},
		{"token without the right", secret, 403, lacks, allocator.ErrDenied, `on key_prefix "gpu-mem/"`},
		{"unknown token", secret, 403, "ACL not found", allocator.ErrDenied, "Consul does not know the token"},
		{"no leader", secret, 500, "No cluster leader", allocator.ErrUnavailable, "No cluster leader"},
		{"server lost", secret, 500, "rpc error making call: EOF", allocator.ErrUnavailable, "EOF"},
		{"proxy", secret, 502, "bad gateway", allocator.ErrUnavailable, "502"},
		{"too many requests", secret, 429, "slow down", allocator.ErrUnavailable, "slow down"},
		{"too large", secret, 413, "Request body too large", allocator.ErrTooLarge, "Request body too large"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			store, address := answering(t, test.token, status(test.code, test.body))
			for name, call := range calls(store) {
				err := call(t.Context())
				must.ErrorIs(t, err, test.want, must.Sprint(name))
				must.ErrorContains(t, err, test.says)
				must.ErrorContains(t, err, address)
				must.ErrorContains(t, err, "gpu-mem/")
				must.StrNotContains(t, err.Error(), secret)
			}
		})
	}
}

// The error of a request that Consul does not understand has its own words, as what a
// community server says of a namespace. It does not count as an outage.
func TestStore_says_what_Consul_does_not_understand(t *testing.T) {
	t.Parallel()
	const words = `Invalid query parameter: "ns" - Namespaces are a Consul Enterprise feature`
	store, address := answering(t, secret, status(http.StatusBadRequest, words))
	for name, call := range calls(store) {
		err := call(t.Context())
		must.ErrorContains(t, err, words, must.Sprint(name))
		must.ErrorContains(t, err, address)
		for _, other := range []error{allocator.ErrUnavailable, allocator.ErrDenied, allocator.ErrConflict} {
			must.False(t, errors.Is(err, other))
		}
	}
}

// A connection that breaks, as at a server's limit of connections, counts as an outage
// whatever the request was.
func TestStore_broken_connection(t *testing.T) {
	t.Parallel()
	store, address := answering(t, secret, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	})
	for name, call := range calls(store) {
		err := call(t.Context())
		must.ErrorIs(t, err, allocator.ErrUnavailable, must.Sprint(name))
		must.ErrorContains(t, err, address)
	}
}

func TestStore_explains_rollbacks(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, body string
		want       error
	}{
		{"stale", `{"Results":null,"Errors":[{"OpIndex":0,"What":"failed to set key \"gpu-mem/key\", index is stale"}]}`, allocator.ErrConflict},
		{"denied", `{"Results":null,"Errors":[{"OpIndex":0,"What":"Permission denied: token lacks permission 'key:write'"}]}`, allocator.ErrDenied},
		{"no reason", ``, allocator.ErrConflict},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			store, _ := answering(t, secret, status(http.StatusConflict, test.body))
			must.ErrorIs(t, calls(store)["apply"](t.Context()), test.want)
		})
	}
}

func TestStore_nobody_listens(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(nil)
	address := server.Listener.Addr().String()
	server.Close()
	store, err := consul.New(consul.Config{Address: address, Token: secret})
	must.NoError(t, err)
	defer store.Close()
	for name, call := range calls(store) {
		err := call(t.Context())
		must.ErrorIs(t, err, allocator.ErrUnavailable, must.Sprint(name))
		must.ErrorContains(t, err, address)
		must.ErrorContains(t, err, "connection refused")
		must.StrNotContains(t, err.Error(), secret)
	}
}

func TestStore_silence(t *testing.T) {
	t.Parallel()
	store, _ := answering(t, "", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or the server would not notice that the client went away
		<-r.Context().Done()
	})
	for name, call := range calls(store) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		must.ErrorIs(t, call(ctx), context.DeadlineExceeded, must.Sprint(name))
		cancel()
	}
}

// A list from which everything was left out looks empty, and Consul does not
// tell those without a token that it left something out.
func TestStore_denied_is_not_empty(t *testing.T) {
	t.Parallel()
	store, _ := answering(t, "", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("recurse") {
			status(404, "")(w, r)
			return
		}
		status(403, "Permission denied")(w, r)
	})
	must.ErrorIs(t, calls(store)["watch"](t.Context()), allocator.ErrDenied)

	partly, _ := answering(t, secret, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Consul-Index", "3")
		w.Header().Set("X-Consul-LastContact", "0")
		w.Header().Set("X-Consul-KnownLeader", "true")
		w.Header().Set("X-Consul-Results-Filtered-By-ACLs", "true")
		fmt.Fprint(w, `[{"Key":"gpu-mem/nodes/a","Value":"e30=","ModifyIndex":3}]`)
	})
	must.ErrorIs(t, calls(partly)["watch"](t.Context()), allocator.ErrDenied)
}

// Values that operators and other programs write.
func TestStore_odd_values(t *testing.T) {
	t.Parallel()
	store, _ := answering(t, "", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Consul-Index", "15")
		fmt.Fprint(w, `[
			{"Key":"gpu-mem/","Value":null,"ModifyIndex":9},
			{"Key":"gpu-mem/gpus/a/claims","Value":null,"ModifyIndex":12},
			{"Key":"gpu-mem/gpus/b/claims","Value":"","ModifyIndex":15},
			{"Key":"gpu-mem/gpus/c/claims","Value":"/wA=","ModifyIndex":13}]`)
	})
	entries, version, err := store.Watch(t.Context(), 0)
	must.NoError(t, err)
	must.Eq(t, 15, version)
	must.Eq(t, []allocator.Entry{
		{Key: "gpus/a/claims", Value: []byte{}, Version: 12}, // there, though empty
		{Key: "gpus/b/claims", Value: []byte{}, Version: 15},
		{Key: "gpus/c/claims", Value: []byte{0xff, 0}, Version: 13},
	}, entries)
}

// A restored Consul has a lower index than the one that was seen.
func TestStore_index_goes_back(t *testing.T) {
	t.Parallel()
	store, _ := answering(t, "", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Consul-Index", "5")
		fmt.Fprint(w, `[]`)
	})
	_, version, err := store.Watch(t.Context(), 9000)
	must.NoError(t, err)
	must.Eq(t, 5, version)
}

func TestStore_refuses_what_is_too_large(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	store, _ := answering(t, "", func(http.ResponseWriter, *http.Request) { requests.Add(1) })

	many := make([]allocator.Write, 65)
	for i := range many {
		many[i] = allocator.Write{Key: fmt.Sprint(i), Value: []byte("1")}
	}
	err := store.Apply(t.Context(), many)
	must.ErrorIs(t, err, allocator.ErrTooLarge)
	must.ErrorContains(t, err, "64")
	must.NoError(t, store.Apply(t.Context(), many[:64]))

	// In base64 three bytes are four.
	large := []allocator.Write{{Key: "key", Value: bytes.Repeat([]byte("x"), 400<<10)}}
	err = store.Apply(t.Context(), large)
	must.ErrorIs(t, err, allocator.ErrTooLarge)
	must.ErrorContains(t, err, "524288")
	must.EqOp(t, 1, requests.Load())
}

func TestNew_refuses_nonsense(t *testing.T) {
	t.Parallel()
	_, err := consul.New(consul.Config{Address: "gopher://here"})
	must.ErrorContains(t, err, "gopher")
	_, err = consul.New(consul.Config{Prefix: "/"})
	must.ErrorIs(t, err, allocator.ErrInvalid)
}
