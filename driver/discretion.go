// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"strings"

	"nomad-gpu-mem/allocator"
)

// Nomad shows a task's events, and the error of its start, to everyone who may read the
// job. Tasks of other namespaces are not named in them; the operator's log names all.

// discreet is an error with a text for a job's author. It matches what the whole error
// matches.
type discreet struct {
	error
	text string
}

func (d discreet) Error() string { return d.text }

func (d discreet) Unwrap() error { return d.error }

// forAuthor returns the error with a text that names tasks of the given namespace only.
func forAuthor(err error, namespace string) error {
	text := err.Error()
	for _, held := range allocator.HeldErrors(err) {
		text = strings.ReplaceAll(text, held.Error(), held.ErrorFor(namespace))
	}
	return discreet{err, text}
}
