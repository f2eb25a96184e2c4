package staging

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
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

// Unmount detaches what is mounted at target, also while it is in use. It has become private before: where the source is
// shared, as on most machines, what is mounted below the target would else be unmounted below the source, too.
func (Kernel) Unmount(target string) error {
	for {
		if err := unix.Mount("", target, "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil && !errors.Is(err, unix.EINVAL) {
			return wrap("unmount", target, err)
		}
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
