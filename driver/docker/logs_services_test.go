// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package docker

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/shoenig/test/must"
)

func TestLogsAreByteForByte(t *testing.T) {
	t.Parallel()
	c := engine(t)
	for _, tc := range []struct {
		name, script, stdout, stderr string
		driver                       string
	}{
		{"two streams", "echo out; echo err >&2", "out\n", "err\n", ""},
		{"no newline at the end", "printf 'one\\ntwo'", "one\ntwo", "", ""},
		{"a long line", "head -c 50000 /dev/zero | tr '\\0' x; echo; echo end", strings.Repeat("x", 50000) + "\nend\n", "", ""},
		{"nothing", "true", "", "", ""},
		// The default driver, json-file, writes U+FFFD for what is not UTF-8.
		{"binary", `printf '\001\377\r\n\033[31m\n\n'; printf '\002\376' >&2`, "\x01\xff\r\n\x1b[31m\n\n", "\x02\xfe", "local"},
		{"a long line, local", "head -c 50000 /dev/zero", strings.Repeat("\x00", 50000), "", "local"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			spec := shell(tc.script)
			spec.Host.LogConfig = container.LogConfig{Type: tc.driver}
			stdout, stderr := output(t, c, start(t, c, spec), false)
			must.Eq(t, tc.stdout, stdout)
			must.Eq(t, tc.stderr, stderr)
		})
	}
}

func TestLogsOfATerminal(t *testing.T) {
	t.Parallel()
	c := engine(t)
	spec := shell("head -c 40000 /dev/zero | tr '\\0' x; echo; echo err >&2; printf end")
	spec.Config.Tty = true
	stdout, stderr := output(t, c, start(t, c, spec), true)
	must.Eq(t, strings.Repeat("x", 40000)+"\r\nerr\r\nend", stdout)
	must.Eq(t, "", stderr)
}

// TestLogsResume breaks off at every other delivery, as a driver that is restarted does, and wants every line once.
func TestLogsResume(t *testing.T) {
	t.Parallel()
	c := engine(t)
	const lines = 3000
	id := start(t, c, shell(fmt.Sprintf(
		"i=0; while [ $i -lt %d ]; do echo out $i; echo err $i >&2; i=$((i+1)); done; head -c 40000 /dev/zero; echo", lines)))

	var stdout, stderr strings.Builder
	var position LogPosition
	broken := errors.New("reader went away")
	deliveries := 0
	sink := func(into *strings.Builder, mark *LogMark) LineSink {
		return func(at LogMark, data []byte) error {
			if deliveries++; deliveries%2 == 0 {
				return broken
			}
			into.Write(data)
			*mark = at
			return nil
		}
	}
	resumed := -1
	for err := broken; err != nil; resumed++ {
		must.ErrorIs(t, err, broken)
		err = c.Logs(t.Context(), id, position, false, sink(&stdout, &position.Stdout), sink(&stderr, &position.Stderr))
	}
	must.Greater(t, 10, resumed)

	var wantOut, wantErr strings.Builder
	for i := range lines {
		fmt.Fprintf(&wantOut, "out %d\n", i)
		fmt.Fprintf(&wantErr, "err %d\n", i)
	}
	wantOut.WriteString(strings.Repeat("\x00", 40000) + "\n")
	must.Eq(t, wantOut.String(), stdout.String())
	must.Eq(t, wantErr.String(), stderr.String())
}

func TestLogsFromNow(t *testing.T) {
	t.Parallel()
	c := engine(t)
	id := start(t, c, shell("echo before; read go; echo after"))
	_, err := c.Wait(t.Context(), id)
	must.NoError(t, err)
	var got []string
	keep := func(_ LogMark, data []byte) error { got = append(got, string(data)); return nil }
	now := LogMark{Time: time.Now()}
	must.NoError(t, c.Logs(t.Context(), id, LogPosition{now, now}, false, keep, keep))
	must.SliceEmpty(t, got)
}

func TestLogsUnreadable(t *testing.T) {
	t.Parallel()
	c := engine(t)
	spec := shell("echo lost")
	spec.Host.LogConfig = container.LogConfig{Type: "none"}
	id := start(t, c, spec)
	ignore := func(LogMark, []byte) error { return nil }
	must.ErrorIs(t, c.Logs(t.Context(), id, LogPosition{}, false, ignore, ignore), ErrLogsUnreadable)
	must.NoError(t, c.Remove(t.Context(), id))
	must.ErrorIs(t, c.Logs(t.Context(), id, LogPosition{}, false, ignore, ignore), ErrNotFound)
}
