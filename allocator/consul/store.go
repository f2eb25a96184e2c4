// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package consul

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"nomad-gpu-mem/allocator"
)

const (
	// answerTime bounds a request that is answered at once. It is longer than the seven
	// seconds for which an agent holds a request while the servers elect a leader.
	answerTime = 15 * time.Second

	// watchTime bounds a blocking query. A client that missed a restore waits for a version
	// that the server may not reach; it notices that after this time.
	watchTime = time.Minute
)

// Store is the table in Consul.
type Store struct {
	client  *api.Client
	http    *http.Client
	tokens  *tokens
	address string
	prefix  string // ends in "/"

	// Where the keys are, in Consul Enterprise. The client adds them to requests;
	// the operations of a transaction have their own.
	namespace, partition string

	closed context.Context
	close  context.CancelFunc
}

var _ allocator.Store = (*Store)(nil)

// New returns a store. It reads certificate files, but does not talk to Consul.
func New(config Config) (*Store, error) {
	prefix := strings.Trim(cmp.Or(config.Prefix, allocator.DefaultPrefix), "/") + "/"
	if prefix == "/" {
		return nil, fmt.Errorf("invalid prefix %q, want for example gpu-mem: %w", config.Prefix, allocator.ErrInvalid)
	}
	conf, tokens, err := config.client()
	if err != nil {
		return nil, err
	}
	client, err := api.NewClient(conf)
	if err != nil {
		return nil, fmt.Errorf("configuration of Consul's client: %w", err)
	}
	config.renewCertificate(conf.HttpClient.Transport)
	conf.HttpClient.Transport = authorized{tokens: tokens, base: conf.HttpClient.Transport}
	s := &Store{
		client:    client,
		http:      conf.HttpClient, // set by NewClient, as are address, namespace and partition
		tokens:    tokens,
		address:   conf.Address,
		prefix:    prefix,
		namespace: conf.Namespace,
		partition: conf.Partition,
	}
	s.closed, s.close = context.WithCancel(context.Background())
	return s, nil
}

// String names the store in messages.
func (s *Store) String() string { return "Consul at " + s.address }

// Close ends the calls in progress and the connections.
func (s *Store) Close() error {
	s.close()
	s.http.CloseIdleConnections()
	return nil
}

// Get returns the entry under key.
func (s *Store) Get(ctx context.Context, key string) (allocator.Entry, error) {
	entry := allocator.Entry{Key: key}
	err := s.do(ctx, answerTime, func(ctx context.Context) error {
		pair, _, err := s.client.KV().Get(s.prefix+key, consistent(ctx))
		if err != nil {
			return s.explain("reading", key, err)
		}
		if pair != nil {
			entry.Value, entry.Version = valueOf(pair), pair.ModifyIndex
		}
		return nil
	})
	return entry, err
}

// Watch returns all entries once the prefix's index is no longer after.
func (s *Store) Watch(ctx context.Context, after uint64) (entries []allocator.Entry, version uint64, err error) {
	wait := after
	for {
		begun := time.Now()
		err = s.do(ctx, watchTime+answerTime, func(ctx context.Context) (err error) {
			entries, version, err = s.list(ctx, wait)
			return err
		})
		if err != nil {
			return nil, 0, err
		}
		if version != after { // also when the index went back: start over
			return entries, version, nil
		}
		// A query that ends early without a change means that the servers' data was
		// restored. The restored data may not reach the index for long, so the next query
		// does not wait for it.
		if wait != 0 && time.Since(begun) < watchTime {
			wait = 0
		} else {
			wait = after
		}
	}
}

func (s *Store) list(ctx context.Context, after uint64) ([]allocator.Entry, uint64, error) {
	query := consistent(ctx)
	query.WaitIndex, query.WaitTime = after, watchTime
	pairs, meta, err := s.client.KV().List(s.prefix, query)
	if err == nil && meta.ResultsFilteredByACLs {
		err = api.StatusError{Code: http.StatusForbidden, Body: "Consul omitted keys that the token may not read"}
	}
	if err == nil && len(pairs) == 0 {
		// Consul omits keys that the token may not read, and reports that only to requests
		// with a token. It denies a single read in either case.
		_, _, err = s.client.KV().Get(s.prefix, consistent(ctx))
	}
	if err != nil {
		return nil, 0, s.explain("reading", "", err)
	}
	entries := make([]allocator.Entry, 0, len(pairs))
	for _, pair := range pairs {
		if key := strings.TrimPrefix(pair.Key, s.prefix); key != "" {
			entries = append(entries, allocator.Entry{Key: key, Value: valueOf(pair), Version: pair.ModifyIndex})
		}
	}
	return entries, max(1, meta.LastIndex), nil
}

// do runs a request until it ends, times out, or ctx or the store is closed.
func (s *Store) do(ctx context.Context, limit time.Duration, request func(context.Context) error) error {
	if s.closed.Err() != nil {
		return allocator.ErrClosed
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer context.AfterFunc(s.closed, cancel)()
	err := request(limited)
	switch {
	case err == nil || !errors.Is(err, allocator.ErrUnavailable):
		return err
	case s.closed.Err() != nil:
		return allocator.ErrClosed
	case ctx.Err() != nil:
		return fmt.Errorf("waiting for Consul at %s: %w", s.address, ctx.Err())
	}
	return err
}

func consistent(ctx context.Context) *api.QueryOptions {
	return (&api.QueryOptions{RequireConsistent: true}).WithContext(ctx)
}

// valueOf returns a value that is never nil: a key without content exists.
func valueOf(pair *api.KVPair) []byte {
	if pair.Value == nil {
		return []byte{}
	}
	return pair.Value
}
