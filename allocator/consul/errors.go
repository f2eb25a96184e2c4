// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package consul

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/hashicorp/consul/api"

	"nomad-gpu-mem/allocator"
)

// explain turns a failed request into an error that names the action, the key and the
// server, and what the operator can do.
func (s *Store) explain(doing, key string, err error) error {
	status, answered := errors.AsType[api.StatusError](err)
	switch {
	case errors.Is(err, errToken):
		return fmt.Errorf("%s %s: no request was sent to Consul at %s: %w: %s", doing, s.prefix+key, s.address, allocator.ErrUnavailable, rootOf(err))
	case !answered:
		return fmt.Errorf("%s %s: Consul at %s does not answer: %w: %s",
			doing, s.prefix+key, s.address, allocator.ErrUnavailable, rootOf(err))
	case status.Code == http.StatusForbidden:
		return s.denied(doing, key, status.Body)
	case status.Code == http.StatusRequestEntityTooLarge:
		return fmt.Errorf("%s %s: Consul at %s: %s: %w", doing, s.prefix+key, s.address, status.Body, allocator.ErrTooLarge)
	case status.Code == http.StatusTooManyRequests || status.Code >= http.StatusInternalServerError:
		return fmt.Errorf("%s %s: Consul at %s cannot answer now: %s (status %d): %w",
			doing, s.prefix+key, s.address, status.Body, status.Code, allocator.ErrUnavailable)
	default:
		return fmt.Errorf("%s %s: Consul at %s: %w", doing, s.prefix+key, s.address, err)
	}
}

// rootOf returns why a request had no answer, without its URL. It returns text, so that a
// request that timed out does not match the error of a caller's context.
func rootOf(err error) string {
	if request, ok := errors.AsType[*url.Error](err); ok {
		err = request.Err
	}
	return err.Error()
}

// denied explains why Consul denied a request: no token, an unknown token, or a token that
// lacks a rule.
func (s *Store) denied(doing, key, reason string) error {
	rule, denied := "write", allocator.ErrWriteDenied
	if doing == "reading" {
		rule, denied = "read", allocator.ErrDenied
	}
	advice := fmt.Sprintf("the token lacks %s on key_prefix %q", rule, s.prefix)
	switch {
	case !s.tokens.configured():
		advice = fmt.Sprintf("no token is set; set one with %s on key_prefix %q", rule, s.prefix)
	case strings.Contains(reason, "ACL not found"):
		advice = "Consul does not know the token; it expired, was deleted or belongs to another cluster"
	}
	return fmt.Errorf("%s %s: Consul at %s: %s (%s): %w", doing, s.prefix+key, s.address, advice, reason, denied)
}
