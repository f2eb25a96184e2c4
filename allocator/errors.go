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
	// ErrHeld is returned by a claim when another task holds one of the units.
	// The units may be free again soon: Nomad sells the units of a stopping
	// task in the same plan that stops it. See HeldError for who holds them.
	ErrHeld = errors.New("units are held by another task")

	// ErrSuperseded is returned by a claim when a newer attempt of the same task
	// has the claim. The caller's attempt is over: it must not run a container,
	// and trying again does not help.
	ErrSuperseded = errors.New("superseded by a newer attempt of the task")

	// ErrConflict is returned by Store.Apply when a key's version is not the
	// expected one, and by the table when that happened too many times in a
	// row. Nothing was written.
	ErrConflict = errors.New("changed by someone else meanwhile")

	// ErrUnavailable is returned when the store cannot be reached or cannot
	// answer. A write may or may not have been applied: repeat it, since
	// claiming and releasing are idempotent.
	ErrUnavailable = errors.New("allocation table is not reachable")

	// ErrClosed is returned by every call on a store that is closed, and by
	// the calls in progress that closing it ends.
	ErrClosed = errors.New("allocation table is closed")

	// ErrDenied is returned when the store refuses the request for lack of
	// permission. A denied read is not an empty table.
	ErrDenied = errors.New("permission denied by the allocation table")

	// ErrWriteDenied is returned when the store refuses a change for lack of
	// permission; it may permit reading. It matches ErrDenied.
	ErrWriteDenied = fmt.Errorf("write %w", ErrDenied)

	// ErrUnreadable is returned when a value is not what this version can
	// decode. It is never overwritten: someone has to look at it.
	ErrUnreadable = errors.New("unreadable value")

	// ErrNoRoom is returned by a reservation or a request for units outside
	// Nomad when the GPU has not so many free units.
	ErrNoRoom = errors.New("not enough free units")

	// ErrNewer is returned, beside ErrUnreadable, when a newer version of this
	// program wrote the value. It is sound: not the value but the program is
	// to be changed.
	ErrNewer = errors.New("written by a newer version, upgrade the plugin")

	// ErrUnitMismatch is returned by a claim whose unit has another size than
	// the unit of the claims that exist on that GPU.
	ErrUnitMismatch = errors.New("memory unit differs from that of existing claims")

	// ErrInvalid is returned for input that breaks the rules of the table
	// itself: units a GPU does not have, an owner without an allocation.
	ErrInvalid = errors.New("invalid request")

	// ErrOtherNode is returned when two nodes report one GPU.
	ErrOtherNode = errors.New("GPU is reported by another node")

	// ErrSharedName is returned when two machines report under one host name.
	ErrSharedName = errors.New("another machine reports under the same host name")

	// ErrTooLarge is returned when a change is more than the store can write
	// at once. Nothing was written.
	ErrTooLarge = errors.New("change is too large for the allocation table")
)

// HeldError says which of the wanted units are held, and by whom. It matches
// ErrHeld.
type HeldError struct {
	GPU     GPUID
	Units   UnitSet // those of the wanted units that are not free
	Holders []Claim // who holds them, by first unit
}

func (e *HeldError) Error() string { return e.text(Claim.name) }

// Told is the text for those who may know the tasks of one namespace only.
func (e *HeldError) Told(namespace string) string {
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
