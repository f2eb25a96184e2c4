// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/status"
)

// Claims keep the unit that they were made with. If the node offers another one
// by now, its number of units says nothing about the claims' ones.
func TestMemoryAfterTheUnitChanged(t *testing.T) {
	t.Parallel()
	b := &builder{t: t, store: newWorld()}
	b.ago(time.Hour).claim(owner("chat", "serve", "1b2c3d4e", "gpu-node-1"),
		allocator.Booking{GPU: a10, UnitMiB: 1024, Of: 15, Units: units(0, 4)})
	b.gpu(a10, allocator.GPUState{Node: "gpu-node-1", Model: "NVIDIA A10", MemoryMiB: 16384, UnitMiB: 512, Units: 31})

	code, out, _ := b.store.run(t, "status", "--json")
	must.Eq(t, ExitOK, code)
	var report struct{ Total status.Memory }
	must.NoError(t, json.Unmarshal([]byte(out), &report))
	must.Eq(t, 4096, report.Total.ClaimedMiB)
	must.Eq(t, 15*1024, report.Total.OfferedMiB)
	must.Eq(t, 0, report.Total.FreeMiB, must.Sprint("units of another size cannot be claimed now"))
}
