// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package tellonce_test

import (
	"errors"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/tellonce"
)

func TestLast(t *testing.T) {
	t.Parallel()
	down, denied := errors.New("connection refused"), errors.New("permission denied")
	var last tellonce.Last
	for step, found := range []struct {
		err           error
		isNew, isOver bool
	}{
		{nil, false, false},
		{down, true, false},
		{down, false, false},
		{denied, true, false},
		{nil, false, true},
		{nil, false, false},
		{denied, true, false},
	} {
		isNew, isOver := last.NoteError(found.err)
		must.Eq(t, found.isNew, isNew, must.Sprint("step ", step))
		must.Eq(t, found.isOver, isOver, must.Sprint("step ", step))
	}
}
