package device

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

// inventory is the newest.
func (h *harness) inventory() inventory {
	newest, _ := h.plugin.board.read()
	return newest
}

// inventoryUntil waits until the inventory is so.
func (h *harness) inventoryUntil(so func(inventory) bool) {
	h.t.Helper()
	for !so(h.inventory()) {
		h.reads(1)
	}
}

// faultUntil waits until NVML as a whole has such a fault, or none.
func (h *harness) faultUntil(text string) {
	h.t.Helper()
	h.inventoryUntil(func(i inventory) bool {
		if text == "" || i.fault == nil {
			return text == "" && i.fault == nil
		}
		return strings.Contains(i.fault.Error(), text)
	})
}

// process makes the host have a process.
func (h *harness) process(pid int, cgroup string, env map[string]string) {
	h.t.Helper()
	dir := filepath.Join(h.plugin.proc, strconv.Itoa(pid))
	must.NoError(h.t, os.MkdirAll(dir, 0o755))
	var environ strings.Builder
	for key, value := range env {
		environ.WriteString(key + "=" + value + "\x00")
	}
	must.NoError(h.t, os.WriteFile(filepath.Join(dir, "environ"), []byte(environ.String()), 0o600))
	must.NoError(h.t, os.WriteFile(filepath.Join(dir, "cgroup"), []byte(cgroup+"\n"), 0o600)) // read first, so written last
}

// claim makes a container hold units of a GPU that has so many.
func (h *harness) claim(gpu string, of int, container string, units ...int) {
	h.t.Helper()
	table, owner := allocator.NewTable(h.store), ownerOf(container)
	booking := allocator.Booking{GPU: allocator.GPUID(gpu), UnitMiB: 1024, Of: of, Units: allocator.NewUnitSet(units...)}
	must.NoError(h.t, table.Claim(h.ctx, owner, allocator.Attempt{ID: "first"}, []allocator.Booking{booking}))
	must.NoError(h.t, table.Running(h.ctx, owner, "first", container, []allocator.GPUID{booking.GPU}))
}

func (h *harness) release(gpu, container string) {
	h.t.Helper()
	must.NoError(h.t, allocator.NewTable(h.store).Release(h.ctx, ownerOf(container), "first", []allocator.GPUID{allocator.GPUID(gpu)}))
}
