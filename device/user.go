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
		if found, ok := u.known[pid]; ok {
			known[pid] = found
		} else {
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
	for _, pid := range pids {
		if found, ok := readUser(filepath.Join(u.proc, strconv.Itoa(pid))); ok {
			u.mu.Lock()
			u.known[pid] = found
			u.mu.Unlock()
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.busy = false
}

// readUser reads a process's folder of proc. A process that is gone, or may not
// be looked at, is not known.
func readUser(dir string) (user, bool) {
	cgroup, err := os.ReadFile(filepath.Join(dir, "cgroup"))
	if err != nil {
		return user{}, false
	}
	environment, err := os.ReadFile(filepath.Join(dir, "environ"))
	if err != nil {
		return user{}, false
	}
	return user{containers: containersOf(string(cgroup)), bookings: bookingsIn(string(environment))}, true
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
