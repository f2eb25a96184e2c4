// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

var (
	// ErrHeld is returned by a claim when another task holds one of the units. They may
	// become free soon: Nomad books the units of a stopping task in the same plan that
	// stops it. HeldError names the holders.
	ErrHeld = errors.New("units are held by another task")

	// ErrSuperseded is returned by a claim when a newer attempt of the same task has the
	// claim. The caller's attempt is over: it must not run a container, and a retry does
	// not help.
	ErrSuperseded = errors.New("superseded by a newer attempt of the task")

	// ErrConflict is returned by Store.Apply when a key's version is not the
	// expected one, and by the table after too many conflicts in a row. Nothing
	// was written.
	ErrConflict = errors.New("changed concurrently")

	// ErrUnavailable is returned when the store is unreachable or cannot answer. A
	// write may or may not have been applied: repeat it, since claiming and
	// releasing are idempotent.
	ErrUnavailable = errors.New("allocation table is not reachable")

	// ErrClosed is returned when a store is closed, before or during the call.
	ErrClosed = errors.New("allocation table is closed")

	// ErrDenied is returned when the caller lacks permission. A denied read is
	// not an empty table.
	ErrDenied = errors.New("permission denied by the allocation table")

	// ErrWriteDenied is returned when the caller lacks permission to change the
	// table; it may have permission to read. It matches ErrDenied.
	ErrWriteDenied = fmt.Errorf("write %w", ErrDenied)

	// ErrUnreadable is returned when this version cannot decode a value. The
	// value is never overwritten: an operator has to repair it.
	ErrUnreadable = errors.New("unreadable value")

	// ErrNoRoom is returned when the GPU has too few free units for a UnitRequest.
	ErrNoRoom = errors.New("not enough free units")

	// ErrNewer is returned, beside ErrUnreadable, when a newer version of this
	// program wrote the value. The value is valid: upgrade the program.
	ErrNewer = errors.New("written by a newer version, upgrade the plugin")

	// ErrUnitMismatch is returned when a claim's unit differs in size from that of
	// the existing claims on the GPU.
	ErrUnitMismatch = errors.New("memory unit differs from that of existing claims")

	// ErrInvalid is returned when input breaks the rules of the table: units that
	// a GPU does not have, an owner without an allocation.
	ErrInvalid = errors.New("invalid request")

	// ErrOtherNode is returned when two nodes report one GPU.
	ErrOtherNode = errors.New("GPU is reported by another node")

	// ErrSharedName is returned when two machines report under one host name.
	ErrSharedName = errors.New("another machine reports under the same host name")

	// ErrTooLarge is returned when a change is larger than one write of the store
	// may be. Nothing was written.
	ErrTooLarge = errors.New("change is too large for the allocation table")
)

// HeldError names the units that are held, and their holders. It matches ErrHeld.
type HeldError struct {
	GPU     GPUID
	Units   UnitSet // the requested units that are not free
	Holders []Claim // their claims, by first unit
}

func (e *HeldError) Error() string { return e.text(Claim.name) }

// ErrorFor returns the text without the names of tasks in other namespaces.
func (e *HeldError) ErrorFor(namespace string) string {
	return e.text(func(holder Claim) string { return holder.NameFor(namespace) })
}

func (e *HeldError) text(name func(Claim) string) string {
	var names []string
	for _, holder := range e.Holders {
		if name := name(holder); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	msg := fmt.Sprintf("units %s of GPU %s are held", e.Units, e.GPU)
	if len(names) > 0 {
		msg += " by " + strings.Join(names, ", ")
	}
	return msg
}

func (e *HeldError) Unwrap() error { return ErrHeld }

// HeldErrors returns the errors of that type in an error and in all that it wraps.
func HeldErrors(err error) []*HeldError {
	switch err := err.(type) { //nolint:errorlint // it takes the tree apart
	case *HeldError:
		return []*HeldError{err}
	case interface{ Unwrap() error }:
		return HeldErrors(err.Unwrap())
	case interface{ Unwrap() []error }:
		var all []*HeldError
		for _, one := range err.Unwrap() {
			all = append(all, HeldErrors(one)...)
		}
		return all
	default:
		return nil
	}
}
