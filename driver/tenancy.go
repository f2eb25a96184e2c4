// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// tenancy proves that this process is the only one of the plugin that works with its
// state_dir. The kernel lets go of the lock when its process dies, however it dies: who
// gets it knows that no earlier process is at work any more.
type tenancy struct {
	path    string
	current string // path of a file that names the process that began last
	living  string // path of a file of which each process that has begun keeps one byte locked: that at its token

	mu    sync.Mutex
	token int64        // by which this process is named; 0: it has not begun yet
	found string       // what current said when this process could not write it: it names an earlier one
	alive *os.File     // living, with its lock: on one byte, which package flock cannot lock
	lock  *flock.Flock // nil: another process has it, or may have it
	since time.Time
}

func newTenancy(stateDir string) *tenancy {
	return &tenancy{
		path: filepath.Join(stateDir, "plugin.lock"), current: filepath.Join(stateDir, "plugin.current"),
		living: filepath.Join(stateDir, "plugin.living"),
	}
}

// announce tells all earlier processes that this one has begun. Where state_dir cannot be
// written no task starts, so that is no reason to fail: the fingerprint reports it.
func (t *tenancy) announce() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.token = rand.Int64N(math.MaxInt64-1) + 1
	if os.MkdirAll(filepath.Dir(t.current), 0o700) != nil {
		return
	}
	file, err := os.OpenFile(t.living, os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil && unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, byteAt(t.token, unix.F_WRLCK)) == nil {
		t.alive = file
	}
	defer t.alone()()
	if t.tell() != nil {
		text, _ := os.ReadFile(t.current)
		t.found = string(text)
	}
}

// tell names this process as the one that began last. The caller has called alone.
func (t *tenancy) tell() error {
	return renameio.WriteFile(t.current, []byte(strconv.FormatInt(t.token, 10)+"\n"), 0o600)
}

// replace is tell, unless current says something else by now: another process has begun meanwhile.
func (t *tenancy) replace(text []byte) {
	defer t.alone()()
	if now, err := os.ReadFile(t.current); err == nil && bytes.Equal(now, text) {
		_ = t.tell()
	}
}

// alone keeps other processes from writing current until done is called. One that hangs with the lock holds nobody up
// for long.
func (t *tenancy) alone() (done func()) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	lock := flock.New(t.current+".lock", flock.SetPermissions(0o600))
	_, _ = lock.TryLockContext(ctx, 5*time.Millisecond)
	return func() { _ = lock.Close() }
}

func byteAt(token int64, kind int16) *unix.Flock_t {
	return &unix.Flock_t{Type: kind, Whence: 0, Start: token, Len: 1}
}

// succeeded reports whether another process has begun since.
func (t *tenancy) succeeded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isSucceeded()
}

// isSucceeded also takes the place of a later process that has died. An agent that was
// killed while it started one may have left this one to the next agent.
func (t *tenancy) isSucceeded() bool {
	if t.token == 0 {
		return false
	}
	text, err := os.ReadFile(t.current)
	if err != nil {
		return false
	}
	if t.found != "" && t.found == string(text) {
		t.replace(text) // the fault of state_dir may have passed
		return false
	}
	latest, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err == nil && latest == t.token {
		return false
	}
	if err != nil || t.alive == nil || t.lives(latest) {
		return true
	}
	t.replace(text)
	return false
}

// lives reports whether a process that has begun is not known to have ended: the kernel
// lets go of its lock, however it dies.
func (t *tenancy) lives(token int64) bool {
	lock := byteAt(token, unix.F_WRLCK)
	err := unix.FcntlFlock(t.alive.Fd(), unix.F_OFD_GETLK, lock)
	return err != nil || lock.Type != unix.F_UNLCK
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
	lock := flock.New(t.path, flock.SetFlag(os.O_RDWR|os.O_CREATE), flock.SetPermissions(0o600))
	if locked, err := lock.TryLock(); err != nil || !locked {
		return time.Time{}, false
	}
	t.lock, t.since = lock, now
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
	if t.alive != nil {
		_ = t.alive.Close()
		t.alive = nil
	}
}
