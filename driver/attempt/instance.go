// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package attempt

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

// InstanceLock proves that this process is the only process of the plugin that uses state_dir. The kernel releases the lock when
// its process dies, however that happens: a process that gets the lock knows that no earlier one is running.
type InstanceLock struct {
	path    string
	current string // path of a file that names the process that began last
	living  string // path of a file in which each process keeps the byte at its token locked

	mu    sync.Mutex
	token int64        // by which this process is named; 0: it has not begun yet
	found string       // what current said when this process could not write it: it names an earlier one
	alive *os.File     // living, with its lock: on one byte, which package flock cannot lock
	lock  *flock.Flock // nil: another process has it, or may have it
	since time.Time
}

// NewInstanceLock opens nothing yet.
func NewInstanceLock(stateDir string) *InstanceLock {
	return &InstanceLock{
		path: filepath.Join(stateDir, "plugin.lock"), current: filepath.Join(stateDir, "plugin.current"),
		living: filepath.Join(stateDir, "plugin.living"),
	}
}

// Announce makes this process the latest one; earlier ones see it with Superseded. It does not fail if state_dir is read-only: the
// fingerprint reports that, and no task starts.
func (l *InstanceLock) Announce() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.token = rand.Int64N(math.MaxInt64-1) + 1
	if os.MkdirAll(filepath.Dir(l.current), 0o700) != nil {
		return
	}
	file, err := os.OpenFile(l.living, os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil && unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, byteAt(l.token, unix.F_WRLCK)) == nil {
		l.alive = file
	}
	defer l.alone()()
	if l.tell() != nil {
		text, _ := os.ReadFile(l.current)
		l.found = string(text)
	}
}

// tell names this process as the one that began last. The caller has called alone.
func (l *InstanceLock) tell() error {
	return renameio.WriteFile(l.current, []byte(strconv.FormatInt(l.token, 10)+"\n"), 0o600)
}

// replace is tell, unless current says something else by now: another process has begun meanwhile.
func (l *InstanceLock) replace(text []byte) {
	defer l.alone()()
	if now, err := os.ReadFile(l.current); err == nil && bytes.Equal(now, text) {
		_ = l.tell()
	}
}

// alone keeps other processes from writing current until done is called. It waits at most a second for a process that
// hangs with the lock.
func (l *InstanceLock) alone() (done func()) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	lock := flock.New(l.current+".lock", flock.SetPermissions(0o600))
	_, _ = lock.TryLockContext(ctx, 5*time.Millisecond)
	return func() { _ = lock.Close() }
}

func byteAt(token int64, kind int16) *unix.Flock_t {
	return &unix.Flock_t{Type: kind, Whence: 0, Start: token, Len: 1}
}

// Superseded reports whether another process has begun since.
func (l *InstanceLock) Superseded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isSuperseded()
}

// isSuperseded also takes the place of a later process that has died. An agent that was
// killed while it started one may have left this one to the next agent.
func (l *InstanceLock) isSuperseded() bool {
	if l.token == 0 {
		return false
	}
	text, err := os.ReadFile(l.current)
	if err != nil {
		return false
	}
	if l.found != "" && l.found == string(text) {
		l.replace(text) // the fault of state_dir may have passed
		return false
	}
	latest, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err == nil && latest == l.token {
		return false
	}
	if err != nil || l.alive == nil || l.lives(latest) {
		return true
	}
	l.replace(text)
	return false
}

// lives reports whether a process may still run: the kernel releases its lock when it dies.
func (l *InstanceLock) lives(token int64) bool {
	lock := byteAt(token, unix.F_WRLCK)
	err := unix.FcntlFlock(l.alive.Fd(), unix.F_OFD_GETLK, lock)
	return err != nil || lock.Type != unix.F_UNLCK
}

// Sole reports whether this is the only process, and since when that is known.
func (l *InstanceLock) Sole(now time.Time) (since time.Time, sole bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isSuperseded() {
		return time.Time{}, false
	}
	if l.lock != nil {
		return l.since, true
	}
	lock := flock.New(l.path, flock.SetFlag(os.O_RDWR|os.O_CREATE), flock.SetPermissions(0o600))
	if locked, err := lock.TryLock(); err != nil || !locked {
		return time.Time{}, false
	}
	l.lock, l.since = lock, now
	return now, true
}

// Close releases the lock to the next process.
func (l *InstanceLock) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lock != nil {
		_ = l.lock.Close()
		l.lock = nil
	}
	if l.alive != nil {
		_ = l.alive.Close()
		l.alive = nil
	}
}
