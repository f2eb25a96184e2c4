// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"fmt"
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

// seesAllProcesses makes proc be that of the host's PID namespace.
func (h *harness) seesAllProcesses() {
	h.t.Helper()
	must.NoError(h.t, os.MkdirAll(filepath.Join(h.plugin.proc, "self/ns"), 0o755))
	must.NoError(h.t, os.Symlink(hostNamespace, filepath.Join(h.plugin.proc, "self/ns/pid")))
	must.NoError(h.t, os.MkdirAll(filepath.Join(h.plugin.proc, "1"), 0o755))
}

// state makes the kernel say in which state a process is.
func (h *harness) state(pid int, state string, threads int) {
	h.t.Helper()
	text := fmt.Sprintf("%d (odd) name (x) %s 1 2 3 0 -1 4 0 0 0 0 0 0 0 0 20 0 %d 0 9 0 0\n", pid, state, threads)
	must.NoError(h.t, os.WriteFile(filepath.Join(h.plugin.proc, strconv.Itoa(pid), "stat"), []byte(text), 0o600))
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
