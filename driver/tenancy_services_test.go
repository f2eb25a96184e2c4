// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package driver

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
	first, second, third := newTenancy(dir), newTenancy(dir), newTenancy(dir)
	first.announce()
	first.end()
	must.NoError(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	second.announce()
	must.False(t, second.succeeded())

	must.NoError(t, unix.Mount("", dir, "", unix.MS_REMOUNT, ""))
	must.False(t, second.succeeded())
	text, err := os.ReadFile(second.current)
	must.NoError(t, err)
	must.Eq(t, fmt.Sprintln(second.token), string(text)) // for those before it
	_, sole := second.sole(time.Now())
	must.True(t, sole)
	third.announce()
	must.True(t, second.succeeded())
	second.end()
	third.end()
}
