// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package attempt

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/shoenig/test/must"
	"golang.org/x/sys/unix"
)

// A state_dir that has become read-only, as after a fault of its disk, still names an earlier process: that is no later
// one. The node's health says what is wrong, and the process must not end for another reason.
func TestServiceReadOnlyStateDirHasNoSuccessor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
	t.Cleanup(func() { must.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	first, second, third := NewInstanceLock(dir), NewInstanceLock(dir), NewInstanceLock(dir)
	first.Announce()
	first.Close()
	must.NoError(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	second.Announce()
	must.False(t, second.Superseded())

	must.NoError(t, unix.Mount("", dir, "", unix.MS_REMOUNT, ""))
	must.False(t, second.Superseded())
	text, err := os.ReadFile(second.current)
	must.NoError(t, err)
	must.Eq(t, fmt.Sprintln(second.token), string(text)) // for those before it
	_, sole := second.Sole(time.Now())
	must.True(t, sole)
	third.Announce()
	must.True(t, second.Superseded())
	second.Close()
	third.Close()
}
