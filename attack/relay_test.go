// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package attack

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

// relay is a proxy between the driver and the engine that records the driver's requests
// for containers: an older engine refuses requests that a newer one serves.
type relay struct {
	path string // of its socket

	mu      sync.Mutex
	asked   []string // bodies of the requests for containers
	create  func()   // called before a request to create a container reaches the engine
	loading func()   // called when an archive's transfer has begun, before any of it has arrived
}

// newRelay listens until the test ends.
func newRelay(t *testing.T, path, engine string) *relay {
	t.Helper()
	r := &relay{path: path}
	listener, err := net.Listen("unix", path)
	must.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "docker"})
	proxy.ErrorLog = log.New(io.Discard, "", 0) // a closed stream is expected
	proxy.FlushInterval = -1                    // streams of output and of progress
	proxy.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", engine)
	}}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.note(req)
		proxy.ServeHTTP(w, req)
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return r
}

func (r *relay) note(req *http.Request) {
	switch {
	case req.Method != http.MethodPost:
	case strings.HasSuffix(req.URL.Path, "/containers/create"):
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return // the engine will report it
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		r.mu.Lock()
		r.asked = append(r.asked, string(body))
		create := r.create
		r.mu.Unlock()
		if create != nil {
			create()
		}
	case strings.HasSuffix(req.URL.Path, "/images/load"):
		r.mu.Lock()
		loading := r.loading
		r.mu.Unlock()
		if loading != nil {
			loading()
		}
		req.Body = &noting{ReadCloser: req.Body, relay: r}
	}
}

// forget begins a new row.
func (r *relay) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked, r.create, r.loading = nil, nil, nil
}

func (r *relay) onCreate(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.create = do
}

func (r *relay) onLoad(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loading = do
}

// requests are the bodies since the row began.
func (r *relay) requests() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.asked, "\n")
}

// noting keeps the beginning of what the driver sends to Docker.
type noting struct {
	io.ReadCloser
	relay *relay
	kept  int
}

func (n *noting) Read(p []byte) (int, error) {
	count, err := n.ReadCloser.Read(p)
	if most := 64 << 10; count > 0 && n.kept < most {
		n.kept += count
		n.relay.mu.Lock()
		defer n.relay.mu.Unlock()
		n.relay.asked = append(n.relay.asked, string(p[:count]))
	}
	return count, err
}
