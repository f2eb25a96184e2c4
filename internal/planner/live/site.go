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

// Table is the part of the allocation table that a Site uses.
type Table interface {
	Snapshot(ctx context.Context) (*allocator.Snapshot, error)
	Profile(ctx context.Context, name string) (allocator.Profile, error)
	Reserve(ctx context.Context, owner allocator.Owner, ttl time.Duration, requests []allocator.UnitRequest) error
	Release(ctx context.Context, owner allocator.Owner, attempt string, gpus []allocator.GPUID) error
}

// Site is a cluster to plan jobs for: Nomad and the allocation table. It is safe for
// concurrent use.
type Site struct {
	nomad *api.Client
	table Table

	mu    sync.Mutex
	nodes map[string]*structs.Node // cache; nodes are large and rarely change
}

// New returns the Site of a Nomad cluster and its allocation table.
func New(nomad *api.Client, table Table) *Site {
	return &Site{nomad: nomad, table: table, nodes: map[string]*structs.Node{}}
}

// ErrNomad is returned when Nomad is unavailable or rejects a request.
var ErrNomad = errors.New("nomad")

// nomadError names the request to Nomad that failed.
type nomadError struct {
	doing string
	err   error
}

func (e *nomadError) Error() string   { return "Nomad: " + e.doing + ": " + e.err.Error() }
func (e *nomadError) Unwrap() []error { return []error{ErrNomad, e.err} }

// nomadFailed wraps an error of a request to Nomad; nil stays nil.
func nomadFailed(doing string, err error) error {
	if err == nil {
		return nil
	}
	return &nomadError{doing: doing, err: err}
}

// notFound reports whether Nomad answered 404.
func notFound(err error) bool {
	answer, ok := errors.AsType[api.UnexpectedResponseError](err)
	return ok && answer.StatusCode() == http.StatusNotFound
}
