// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/attempt"
)

// While the claims of one of a task's GPUs cannot be read, its claim on the other is
// asserted and released as ever; the rest follows once the operator has corrected the value.
func TestUnreadableLedgerHoldsUpNoOtherGPU(t *testing.T) {
	t.Parallel()
	for what, value := range map[string]string{"nonsense": "nonsense", "a newer version's": `{"version":2}`} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d := w.boot()
			task := w.task(``, slice(gpuA, 3), slice(gpuB, 4))
			_, _, err := d.StartTask(task)
			must.NoError(t, err)
			key := allocator.ClaimsKey(gpuA)
			good, err := w.store.Get(t.Context(), key)
			must.NoError(t, err)
			must.NoError(t, w.store.Apply(t.Context(), []allocator.Write{{Key: key, Value: []byte(value), Version: good.Version}}))

			must.NoError(t, w.table.Release(t.Context(), attempt.OwnerOf(task), task.ID, []allocator.GPUID{gpuB}))
			eventually(t, func() bool { return len(w.claims()) == 1 })
			must.ErrorContains(t, d.DestroyTask(task.ID, true), key)
			must.SliceEmpty(t, w.claims())

			bad, err := w.store.Get(t.Context(), key)
			must.NoError(t, err)
			must.NoError(t, w.store.Apply(t.Context(), []allocator.Write{{Key: key, Value: good.Value, Version: bad.Version}}))
			w.nothingLeft()
		})
	}
}
