package driver

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"
	"github.com/hashicorp/nomad/helper/uuid"
	"golang.org/x/sys/unix"
)

// tenancy proves that this process is the only one of the plugin that works with its
// state_dir. The kernel lets go of the lock when its process dies, however it dies: who
// gets it knows that no earlier process is at work any more.
type tenancy struct {
	path    string
	current string // path of a file that names the process that began last
	token   string // by which this process is named there; empty: it has not begun yet

	mu    sync.Mutex
	lock  *os.File // nil: another process has it, or may have it
	since time.Time
}

func newTenancy(stateDir string) *tenancy {
	return &tenancy{path: filepath.Join(stateDir, "plugin.lock"), current: filepath.Join(stateDir, "plugin.current")}
}

// announce tells all earlier processes that this one has begun. Where state_dir cannot be
// written no task starts, so that is no reason to fail: the fingerprint reports it.
func (t *tenancy) announce() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.token = uuid.Generate()
	if os.MkdirAll(filepath.Dir(t.current), 0o700) == nil {
		_ = renameio.WriteFile(t.current, []byte(t.token+"\n"), 0o600)
	}
}

// succeeded reports whether another process has begun since.
func (t *tenancy) succeeded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isSucceeded()
}

func (t *tenancy) isSucceeded() bool {
	if t.token == "" {
		return false
	}
	latest, err := os.ReadFile(t.current)
	return err == nil && strings.TrimSpace(string(latest)) != t.token
}

// sole reports whether this is the only process, and since when that is known.
func (t *tenancy) sole(now time.Time) (since time.Time, sole bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isSucceeded() {
		return time.Time{}, false
	}
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
