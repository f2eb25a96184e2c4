// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package live

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/nomad/structs"

	"nomad-gpu-mem/allocator"
)

// Table is what a Site needs of the allocation table.
type Table interface {
	Snapshot(ctx context.Context) (*allocator.Snapshot, error)
	Profile(ctx context.Context, name string) (allocator.Profile, error)
	Reserve(ctx context.Context, owner allocator.Owner, ttl time.Duration, rooms []allocator.Room) error
	Release(ctx context.Context, owner allocator.Owner, attempt string, gpus []allocator.GPUID) error
}

// Site is a cluster that jobs are planned for. Its methods may be called
// concurrently.
type Site struct {
	nomad *api.Client
	table Table

	mu    sync.Mutex
	nodes map[string]*structs.Node // as read last; they are large and seldom change
}

// New returns the cluster behind a Nomad server and its allocation table.
func New(nomad *api.Client, table Table) *Site {
	return &Site{nomad: nomad, table: table, nodes: map[string]*structs.Node{}}
}

// ErrNomad is returned when Nomad does not answer, or refuses.
var ErrNomad = errors.New("nomad")

// nomadError says what was asked of Nomad, and what came back.
type nomadError struct {
	doing string
	err   error
}

func (e *nomadError) Error() string   { return "Nomad: " + e.doing + ": " + e.err.Error() }
func (e *nomadError) Unwrap() []error { return []error{ErrNomad, e.err} }

// asked wraps an error of Nomad's, if it is one.
func asked(doing string, err error) error {
	if err == nil {
		return nil
	}
	return &nomadError{doing: doing, err: err}
}

// notFound reports whether Nomad does not know what was asked for.
func notFound(err error) bool {
	answer, ok := errors.AsType[api.UnexpectedResponseError](err)
	return ok && answer.StatusCode() == http.StatusNotFound
}
