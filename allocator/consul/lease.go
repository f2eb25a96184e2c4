// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package consul

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/consul/api"

	"nomad-gpu-mem/allocator"
)

var _ allocator.Leaser = (*Store)(nil)

// lockDelay is how long Consul locks a key after its session has ended. A lease protects
// nothing, so it is the shortest possible; 0 would mean Consul's default of 15 seconds.
const lockDelay = time.Millisecond

// Lease renews the session that holds the key, or acquires the key with a new session. The
// session has a time to live and no checks, so it does not end because the agents' gossip
// missed the node for a moment. Consul deletes the key with the session, no earlier than ttl
// after the last renewal and no later than twice that.
func (s *Store) Lease(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	return s.do(ctx, answerTime, func(ctx context.Context) error {
		write := (&api.WriteOptions{}).WithContext(ctx)
		pair, _, err := s.client.KV().Get(s.prefix+key, consistent(ctx))
		if err != nil {
			return s.explain("reading", key, err)
		}
		if pair != nil && pair.Session != "" {
			renewed, err := s.renew(pair.Session, write)
			if err != nil {
				return s.explainLease(key, err)
			}
			if renewed {
				return nil
			}
		}
		return s.newLease(key, value, ttl, write)
	})
}

// renew renews a session, and reports whether it still exists. The client's own
// Renew would drop the status of a failure.
func (s *Store) renew(session string, write *api.WriteOptions) (bool, error) {
	_, err := s.client.Raw().Write("/v1/session/renew/"+url.PathEscape(session), nil, nil, write)
	if status, ok := errors.AsType[api.StatusError](err); ok && status.Code == http.StatusNotFound {
		return false, nil
	}
	return err == nil, err
}

func (s *Store) newLease(key string, value []byte, ttl time.Duration, write *api.WriteOptions) error {
	session, _, err := s.client.Session().CreateNoChecks(&api.SessionEntry{
		Name: "lease of " + s.prefix + key, TTL: ttl.String(), LockDelay: lockDelay, Behavior: api.SessionBehaviorDelete,
	}, write)
	if err != nil {
		return s.explainLease(key, err)
	}
	acquired, _, err := s.client.KV().Acquire(&api.KVPair{Key: s.prefix + key, Value: value, Session: session}, write)
	if err != nil {
		return s.explain("writing", key, err)
	}
	if !acquired {
		_, _ = s.client.Session().Destroy(session, write) // else it would last until its TTL ends
		return fmt.Errorf("lease %s: another session holds it in Consul at %s: %w", s.prefix+key, s.address, allocator.ErrConflict)
	}
	return nil
}

// explainLease is explain for sessions, which need another permission.
func (s *Store) explainLease(key string, err error) error {
	if err = s.explain("leasing", key, err); !errors.Is(err, allocator.ErrDenied) {
		return err
	}
	return fmt.Errorf("%w; a lease also needs session_prefix \"\" write", err)
}
