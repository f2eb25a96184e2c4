// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package consul

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
)

// errToken is returned when the token file cannot be read, so that the request is not sent.
// The program that renews the token may be about to write the file.
var errToken = errors.New("cannot read the Consul token")

// tokens provides the ACL token of requests.
type tokens struct {
	file   string           // empty if the token never changes
	notify func(msg string) // called when the token changes, and when the file cannot be read

	mu    sync.Mutex
	token string // the newest
	fault string // reported already
}

// newTokens uses the token of the configuration or, like all Consul clients, of the
// environment. In each of them a file overrides a token.
func newTokens(config Config, envToken, envFile string) *tokens {
	t := &tokens{notify: config.Notify}
	if t.notify == nil {
		t.notify = func(string) {}
	}
	switch {
	case config.TokenFile != "":
		t.file = config.TokenFile
	case config.Token != "":
		t.token = config.Token
	case envFile != "":
		t.file = envFile
	default:
		t.token = envToken
	}
	return t
}

// configured reports whether requests carry a token.
func (t *tokens) configured() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.file != "" || t.token != ""
}

// newest returns the current token. It reads the file for each request: it is short, and a
// replaced token may be deleted at any moment. While the file cannot be read, it returns the
// last token.
func (t *tokens) newest() (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file == "" {
		return t.token, nil
	}
	token, err := readToken(t.file)
	if err != nil {
		if t.token == "" {
			return "", err
		}
		if err.Error() != t.fault {
			t.fault = err.Error()
			t.notify(t.fault + "; keeping the last token")
		}
		return t.token, nil
	}
	t.fault = ""
	if t.token != "" && token != t.token {
		t.notify("using the new Consul token in " + t.file)
	}
	t.token = token
	return token, nil
}

func readToken(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errToken, err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("%w: %s is empty", errToken, file)
	}
	return token, nil
}

// authorized is a transport that adds the newest token to each request.
type authorized struct {
	tokens *tokens
	base   http.RoundTripper
}

const aclHeader = "X-Consul-Token"

// RoundTrip sends the request, and again if Consul denies it and the file has another token
// by then.
func (a authorized) RoundTrip(req *http.Request) (*http.Response, error) {
	token, err := a.tokens.newest()
	if err != nil {
		closeBody(req)
		return nil, err
	}
	answer, err := a.base.RoundTrip(withToken(req, token))
	if err != nil || answer.StatusCode != http.StatusForbidden {
		return answer, err
	}
	newer, err := a.tokens.newest()
	if err != nil || newer == token || req.Body != nil && req.GetBody == nil {
		return answer, nil
	}
	again := withToken(req, newer)
	if req.GetBody != nil {
		if again.Body, err = req.GetBody(); err != nil {
			return answer, nil
		}
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10)) // so that the connection can be used again
	_ = answer.Body.Close()
	return a.base.RoundTrip(again)
}

// CloseIdleConnections implements the interface that http.Client checks for.
func (a authorized) CloseIdleConnections() {
	if base, ok := a.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// withToken returns a copy: a transport must not change a request.
func withToken(req *http.Request, token string) *http.Request {
	req = req.Clone(req.Context())
	req.Header.Del(aclHeader)
	if token != "" {
		req.Header.Set(aclHeader, token)
	}
	return req
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}
