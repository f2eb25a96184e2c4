// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"nomad-gpu-mem/allocator"
)

// user is the owner of a process, as far as its host shows it.
type user struct {
	containers []string            // it runs in, the outermost first
	bookings   []allocator.Booking // that Nomad put into its environment

	// gone means that the process does not exist, or is a zombie: the memory that NVML
	// counts for it is in use without a process.
	gone bool
}

// users finds the owners of processes. Reading a process that hangs in the GPU's driver may
// hang too, so a separate goroutine reads, one at a time; until then a process is unknown.
type users struct {
	proc string // where proc is mounted

	mu    sync.Mutex
	known map[int]user // by PID
	busy  bool         // whether the goroutine runs
}

func newUsers(proc string) *users { return &users{proc: proc, known: map[int]user{}} }

// of returns the known owners of these processes, starts reading the rest, and forgets all
// others, since process IDs are reused.
func (u *users) of(pids []int) map[int]user {
	u.mu.Lock()
	defer u.mu.Unlock()
	known := make(map[int]user, len(pids))
	var strangers []int
	for _, pid := range pids {
		found, ok := u.known[pid]
		if ok {
			known[pid] = found
		}
		if !ok || found.gone { // the ID may be another process's by now
			strangers = append(strangers, pid)
		}
	}
	u.known = known
	if len(strangers) > 0 && !u.busy {
		u.busy = true
		go u.look(strangers)
	}
	return maps.Clone(known)
}

func (u *users) look(pids []int) {
	all := seesAll(u.proc)
	for _, pid := range pids {
		dir := filepath.Join(u.proc, strconv.Itoa(pid))
		found, ok := readUser(dir)
		if all && len(found.containers) == 0 && isGone(dir) {
			found, ok = user{gone: true}, true
		}
		u.mu.Lock()
		if ok {
			u.known[pid] = found
		} else {
			delete(u.known, pid)
		}
		u.mu.Unlock()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.busy = false
}

// readUser reads a process's folder of proc. A process that is gone or not readable is
// unknown; its containers may still be known.
func readUser(dir string) (user, bool) {
	cgroup, err := os.ReadFile(filepath.Join(dir, "cgroup"))
	if err != nil {
		return user{}, false
	}
	found := user{containers: containersOf(string(cgroup))}
	environment, err := os.ReadFile(filepath.Join(dir, "environ"))
	if err != nil {
		return found, false
	}
	found.bookings = bookingsIn(string(environment))
	return found, true
}

// bookingsIn finds the bookings in the text of a process's environment. A task may forge
// these, but can only hide its own use.
func bookingsIn(environment string) []allocator.Booking {
	env := map[string]string{}
	for entry := range strings.SplitSeq(environment, "\x00") {
		if key, value, ok := strings.Cut(entry, "="); ok && strings.HasPrefix(key, allocator.BookingEnvPrefix) {
			env[key] = value
		}
	}
	bookings, err := allocator.ParseBookings(env)
	if err != nil {
		return nil
	}
	return bookings
}
