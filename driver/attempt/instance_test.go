// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package attempt

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

func TestTenancy(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), time.Now()
	first, second := NewInstanceLock(dir), NewInstanceLock(dir)
	since, sole := first.Sole(now)
	must.True(t, sole)
	must.Eq(t, now, since)
	_, sole = second.Sole(now)
	must.False(t, sole)
	first.Close()
	since, sole = second.Sole(now.Add(time.Minute))
	must.True(t, sole)
	must.Eq(t, now.Add(time.Minute), since)
	since, _ = second.Sole(now.Add(time.Hour))
	must.Eq(t, now.Add(time.Minute), since)
	second.Close()
	_, sole = NewInstanceLock(filepath.Join(dir, "none")).Sole(now)
	must.False(t, sole, must.Sprint("nothing is known where nothing can be locked"))
}

func TestDeadSuccessorsDoNotCount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, second, third := NewInstanceLock(dir), NewInstanceLock(dir), NewInstanceLock(dir)
	first.Announce()
	must.False(t, first.Superseded())
	second.Announce()
	third.Announce()
	must.True(t, first.Superseded())
	must.True(t, second.Superseded())
	_, sole := first.Sole(time.Now())
	must.False(t, sole)

	third.Close()
	second.Close()
	must.False(t, first.Superseded())
	_, sole = first.Sole(time.Now())
	must.True(t, sole)
	must.NoError(t, os.WriteFile(first.current, []byte("not a number\n"), 0o600)) // a newer version's
	must.True(t, first.Superseded())
	first.Close()
}

func TestPlaceOfADeadSuccessorIsTakenOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, second, third := NewInstanceLock(dir), NewInstanceLock(dir), NewInstanceLock(dir)
	first.Announce()
	second.Announce()
	seen, err := os.ReadFile(first.current)
	must.NoError(t, err)
	second.Close()
	third.Announce()
	first.replace(seen)
	must.True(t, first.Superseded())
	must.False(t, third.Superseded())
	third.Close()
	first.replace(seen)
	must.False(t, first.Superseded())
	first.Close()
}
