// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"
)

// grace is how long requests in progress may take when the server stops.
const grace = 15 * time.Second

// Serve serves the listener until ctx ends, and then waits for requests in progress.
// timeout bounds one request; certificates may be nil for plain HTTP.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, timeout time.Duration, certificates *tls.Config) error {
	server := &http.Server{
		Handler:           handler,
		TLSConfig:         certificates,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      timeout + 30*time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
	ended := make(chan error, 1)
	go func() {
		if certificates != nil {
			ended <- server.ServeTLS(listener, "", "")
		} else {
			ended <- server.Serve(listener)
		}
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := server.Shutdown(last)
	if done := <-ended; !errors.Is(done, http.ErrServerClosed) {
		err = errors.Join(err, done)
	}
	return err
}
