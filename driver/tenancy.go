package driver

import (
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// tenancy proves that this process is the only one of the plugin that works with its
// state_dir. The kernel lets go of the lock when its process dies, however it dies: who
// gets it knows that no earlier process is at work any more.
type tenancy struct {
	path string

	mu    sync.Mutex
	lock  *os.File // nil: another process has it, or may have it
	since time.Time
}

func newTenancy(stateDir string) *tenancy {
	return &tenancy{path: filepath.Join(stateDir, "plugin.lock")}
}

// sole reports whether this is the only process, and since when that is known.
func (t *tenancy) sole(now time.Time) (since time.Time, sole bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lock != nil {
		return t.since, true
	}
	file, err := os.OpenFile(t.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return time.Time{}, false
	}
	if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		_ = file.Close()
		return time.Time{}, false
	}
	t.lock, t.since = file, now
	return now, true
}

// end makes way for the next process.
func (t *tenancy) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lock != nil {
		_ = t.lock.Close()
		t.lock = nil
	}
}
