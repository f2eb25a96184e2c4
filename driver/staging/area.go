// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package staging

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"

	"nomad-gpu-mem/driver/taskfile"
)

// Mounts are the calls to the kernel. See Kernel.
type Mounts interface {
	Tmpfs(dir string) error
	Bind(source, target string) error
	Follow(target string) error
	ReadOnly(target string) error
	Cover(source, target, name string) error
	// Unmount detaches all mounts at target. Without one it returns nil.
	Unmount(target string) error
	IsMount(dir string) (bool, error)
}

// Area is the directory where sources are mounted.
type Area struct {
	dir    string
	mounts Mounts
	mu     sync.Mutex // one mounts the tmpfs
}

// New returns the area in a plugin's state_dir. It does nothing yet.
func New(stateDir string, mounts Mounts) *Area {
	return &Area{dir: filepath.Join(stateDir, "staging"), mounts: mounts}
}

const (
	attemptsName = "attempts"
	blocker      = "The task driver mounts directories here, and the process that reads this file does not see its mounts.\n"
)

// Cover is a directory in what is staged that gets a mount of its own. What is staged with covers is read-only but for
// those that are writable: a process that gets it cannot change its names.
type Cover struct {
	Name     string        // of the directory in what is staged
	Held     taskfile.Held // the directory
	Writable bool
}

// Stage mounts what is held for an attempt, in the place of what an earlier call with that number has mounted, and
// returns its path. It stays until Remove.
//
// All of it is put together aside, and appears at once: also for a Docker daemon with mounts of its own, which follows
// those of this process.
func (a *Area) Stage(attempt string, number int, held taskfile.Held, covers ...Cover) (string, error) {
	if err := a.prepare(); err != nil {
		return "", fmt.Errorf("cannot prepare %s: %w", a.dir, err)
	}
	target := filepath.Join(a.path(attempt), strconv.Itoa(number))
	err := os.MkdirAll(filepath.Dir(target), 0o700)
	aside := target + "-aside"
	if err == nil {
		err = a.follow(held, aside)
	}
	for n, cover := range covers {
		if err == nil {
			err = a.cover(cover, aside, fmt.Sprint(target, "-cover-", n))
		}
	}
	if err == nil && len(covers) > 0 {
		err = a.mounts.ReadOnly(aside)
	}
	if err == nil {
		err = a.bind(aside, target, held.IsDir())
	}
	if err == nil {
		err = a.clear(aside)
	}
	if err != nil {
		return "", fmt.Errorf("cannot mount at %s: %w", target, err)
	}
	return target, nil
}

func (a *Area) follow(held taskfile.Held, target string) error {
	if err := a.bind(held.Path(), target, held.IsDir()); err != nil {
		return err
	}
	return a.mounts.Follow(target)
}

// cover mounts a cover in what is mounted at target, by way of aside.
func (a *Area) cover(cover Cover, target, aside string) error {
	err := a.follow(cover.Held, aside)
	if err == nil && !cover.Writable {
		err = a.mounts.ReadOnly(aside)
	}
	if err == nil {
		err = a.mounts.Cover(aside, target, cover.Name)
	}
	if err == nil {
		err = a.clear(aside)
	}
	return err
}

// bind mounts source at target, in the place of what is there.
func (a *Area) bind(source, target string, dir bool) error {
	err := a.clear(target)
	if err == nil && dir {
		err = os.Mkdir(target, 0o700)
	} else if err == nil {
		err = os.WriteFile(target, nil, 0o600)
	}
	if err == nil {
		err = a.mounts.Bind(source, target)
	}
	return err
}

// prepare mounts the tmpfs, unless it is there.
func (a *Area) prepare() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return err
	}
	lock := flock.New(a.dir+".lock", flock.SetPermissions(0o600)) // against other processes of the plugin
	if err := lock.Lock(); err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	mounted, err := a.mounts.IsMount(a.dir)
	if err != nil || mounted {
		return err
	}
	attempts := filepath.Join(a.dir, attemptsName)
	if err := os.WriteFile(attempts, []byte(blocker), 0o600); err != nil {
		return err
	}
	if err := a.mounts.Tmpfs(a.dir); err != nil {
		return err
	}
	return os.Mkdir(attempts, 0o700)
}

// Remove detaches what is mounted for an attempt. Containers that have it keep it.
func (a *Area) Remove(attempt string) error { return a.removeAll(a.path(attempt)) }

// Sweep removes what is mounted for attempts that the journal no longer has. The journal is listed after the mounts: an
// attempt is recorded before anything is mounted for it.
func (a *Area) Sweep(recorded func() (ids []string, err error)) error {
	entries, err := os.ReadDir(filepath.Join(a.dir, attemptsName))
	if isNone(err) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	ids, err := recorded()
	if err != nil {
		return nil // an unreadable record may be of any attempt; the sweep of the journal reports it
	}
	keep := map[string]bool{}
	for _, id := range ids {
		keep[a.path(id)] = true
	}
	var failed []error
	for _, entry := range entries {
		if dir := filepath.Join(a.dir, attemptsName, entry.Name()); !keep[dir] {
			failed = append(failed, a.removeAll(dir))
		}
	}
	return errors.Join(failed...)
}

func (a *Area) removeAll(dir string) error {
	entries, err := os.ReadDir(dir)
	if isNone(err) {
		return nil
	}
	failed := []error{err}
	for _, entry := range entries {
		failed = append(failed, a.clear(filepath.Join(dir, entry.Name())))
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("cannot remove the mounts of a finished task: %w", err)
	}
	if err := os.Remove(dir); !isNone(err) {
		return err
	}
	return nil
}

// clear removes the place of a mount: never what is mounted there.
func (a *Area) clear(target string) error {
	if err := a.mounts.Unmount(target); err != nil && !isNone(err) {
		return err
	}
	err := os.Remove(target)
	if errors.Is(err, unix.ENOTEMPTY) {
		err = os.RemoveAll(target) // what Docker has made for `docker cp`; nothing is mounted there now
	}
	if !isNone(err) {
		return err
	}
	return nil
}

// isNone reports whether an error says that there is nothing: also before the tmpfs is mounted.
func isNone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotDir)
}

// path is the attempt's directory. Its ID has slashes, and may be long by its task's name.
func (a *Area) path(attempt string) string {
	sum := sha256.Sum256([]byte(attempt))
	return filepath.Join(a.dir, attemptsName, hex.EncodeToString(sum[:12]))
}
