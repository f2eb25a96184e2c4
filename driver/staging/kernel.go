// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package staging

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"nomad-gpu-mem/driver/taskfile"
)

const errNotDir = unix.ENOTDIR

// Kernel makes real mounts, in the mount namespace of this process.
type Kernel struct{}

var _ Mounts = Kernel{}

// Tmpfs mounts an empty file system that only root can enter.
func (Kernel) Tmpfs(dir string) error {
	return wrap("mount a tmpfs at", dir, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"))
}

// Bind mounts source, and what is mounted below it, at target.
func (Kernel) Bind(source, target string) error {
	return wrap("mount at", target, unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""))
}

// Follow has what is mounted at target follow its source: what is mounted or unmounted below the source later is so below
// the target, too, and never the other way.
func (Kernel) Follow(target string) error {
	return wrap("change the propagation of", target, unix.Mount("", target, "", unix.MS_SLAVE|unix.MS_REC, ""))
}

// ReadOnly makes what is mounted at target read-only there.
func (Kernel) ReadOnly(target string) error {
	var at unix.Statfs_t
	if err := unix.Statfs(target, &at); err != nil {
		return wrap("look at", target, err)
	}
	kept := uintptr(at.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC) // the two calls name them by the same bits
	return wrap("make read-only", target, unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|kept, ""))
}

// Cover mounts source over a directory in what is mounted at target. If that is a link, it fails.
func (k Kernel) Cover(source, target, name string) error {
	dir, err := taskfile.OpenDir(target)
	if err != nil {
		return err
	}
	defer dir.Close()
	at, err := dir.Hold(name)
	if err != nil {
		return err
	}
	defer at.Close()
	return k.Bind(source, at.Path())
}

// Unmount detaches what is mounted at target, also while it is in use.
func (Kernel) Unmount(target string) error {
	for {
		err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) { // nothing is mounted there
			return nil
		}
		if err != nil {
			return wrap("unmount", target, err)
		}
	}
}

// IsMount reports whether a file system of its own begins at dir.
func (Kernel) IsMount(dir string) (bool, error) {
	var at, above unix.Stat_t
	if err := unix.Stat(dir, &at); err != nil {
		return false, wrap("look at", dir, err)
	}
	if err := unix.Stat(filepath.Dir(dir), &above); err != nil {
		return false, wrap("look at", filepath.Dir(dir), err)
	}
	return at.Dev != above.Dev, nil
}

func wrap(call, path string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("%w (the agent must be root with CAP_SYS_ADMIN)", err)
	}
	return &os.PathError{Op: call, Path: path, Err: err}
}
