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

// user is for whom a process runs, as far as its host can tell.
type user struct {
	containers []string            // it runs in, the outermost first
	bookings   []allocator.Booking // that Nomad put into its environment

	// gone says that there is no such process, or that nothing but its exit code is
	// left: what NVML counts for it is memory without a process.
	gone bool
}

// users finds out for whom processes run. Looking at a process that hangs in
// the GPU's driver may hang as well, so a goroutine of its own looks, one at a
// time; until it has, a process counts as not known.
type users struct {
	proc string // where proc is mounted

	mu    sync.Mutex
	known map[int]user // by PID
	busy  bool         // somebody looks
}

func newUsers(proc string) *users { return &users{proc: proc, known: map[int]user{}} }

// of returns what is known of these processes, has the rest looked at, and
// forgets all others: a process ID is used again.
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

// readUser reads a process's folder of proc. A process that is gone, or may not be
// looked at, is not known; its containers may be all the same.
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

// bookingsIn finds the bookings in the text of a process's environment. A task
// can write there what it likes; it can thus hide its own use, and no more.
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
