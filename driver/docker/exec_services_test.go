// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package docker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

func TestExec(t *testing.T) {
	t.Parallel()
	c := engine(t)
	id := start(t, c, shell(forever))
	got, err := c.Exec(t.Context(), id, []string{"/bin/sh", "-c", "echo out; echo err >&2; exit 43"}, 4096)
	must.NoError(t, err)
	must.Eq(t, ExecResult{Stdout: []byte("out\n"), Stderr: []byte("err\n"), Code: 43}, got)

	long, err := c.Exec(t.Context(), id, []string{"/bin/sh", "-c", "head -c 100000 /dev/zero; echo end"}, 5)
	must.NoError(t, err)
	must.Eq(t, "\x00end\n", string(long.Stdout))

	missing, err := c.Exec(t.Context(), id, []string{"/no/such/program"}, 4096)
	must.NoError(t, err)
	must.SliceContains(t, []int{126, 127}, missing.Code, must.Sprint("as engines differ")) // 127 since Docker 28

	must.NoError(t, c.Stop(t.Context(), id, "", 0))
	_, err = c.Exec(t.Context(), id, []string{"true"}, 4096)
	must.ErrorIs(t, err, ErrNotRunning)
	must.NoError(t, c.Remove(t.Context(), id))
	_, err = c.Exec(t.Context(), id, []string{"true"}, 4096)
	must.ErrorIs(t, err, ErrNotFound)
}

func TestExecEndsWithItsContext(t *testing.T) {
	t.Parallel()
	c := engine(t)
	id := start(t, c, shell(forever))
	tired := errors.New("tired")
	for _, tty := range []bool{false, true} {
		ctx, cancel := context.WithCancelCause(t.Context())
		output := &onWrite{do: func() { cancel(tired) }}
		_, err := c.ExecStream(ctx, id, ExecStreamRequest{
			Cmd: []string{"/bin/sh", "-c", "echo started; " + forever}, TTY: tty, Stdout: output, Stderr: output,
		})
		must.ErrorIs(t, err, tired)
	}
}

// onWrite calls a function at each write.
type onWrite struct{ do func() }

func (w *onWrite) Write(p []byte) (int, error) {
	w.do()
	return len(p), nil
}

func TestExecStream(t *testing.T) {
	t.Parallel()
	c := engine(t)
	id := start(t, c, shell(forever))
	for _, tc := range []struct {
		name, script   string
		tty            bool
		stdin          string
		stdout, stderr string
		code           int
	}{
		{name: "exit code", script: "echo out; echo err >&2; exit 43", stdout: "out\n", stderr: "err\n", code: 43},
		{name: "end of input", script: "cat; echo eof", stdin: "a\nb", stdout: "a\nbeof\n"},
		{name: "input is not read", script: "echo deaf", stdin: strings.Repeat("x", 1<<20), stdout: "deaf\n"},
		{name: "much input", script: "wc -c", stdin: strings.Repeat("x", 1<<20), stdout: "1048576\n"},
		{name: "children keep the output open", script: "(sleep 0.5; echo child) & echo main", stdout: "main\nchild\n"},
		{name: "much output", script: "head -c 300000 /dev/zero | tr '\\0' x", stdout: strings.Repeat("x", 300000)},
		{name: "terminal: exit code", script: "echo out; echo err >&2; exit 43", tty: true, stdout: "out\r\nerr\r\n", code: 43},
		{name: "terminal: input", script: "head -n1", tty: true, stdin: "hello\n", stdout: "hello\r\nhello\r\n"},
		{name: "terminal: children do not count", tty: true, stdout: "main\r\n",
			script: "(( sleep 5; echo child ) & ); echo main; exec sleep 0.2"},
		{name: "terminal: much output", script: "head -c 300000 /dev/zero | tr '\\0' x", tty: true,
			stdout: strings.Repeat("x", 300000)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			req := ExecStreamRequest{Cmd: []string{"/bin/sh", "-c", tc.script}, TTY: tc.tty, Stdout: &stdout, Stderr: &stderr}
			if tc.stdin != "" {
				req.Stdin = strings.NewReader(tc.stdin)
				if tc.tty {
					req.Stdin = held(t, tc.stdin) // a terminal's input does not end
				}
			}
			code, err := c.ExecStream(t.Context(), id, req)
			must.NoError(t, err)
			must.Eq(t, tc.stdout, stdout.String())
			must.Eq(t, tc.stderr, stderr.String())
			must.Eq(t, tc.code, code)
		})
	}
}

// held is a reader that gives text and then blocks until the test ends.
func held(t *testing.T, text string) io.Reader {
	r, w := io.Pipe()
	t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
	return io.MultiReader(strings.NewReader(text), r)
}

func TestExecResize(t *testing.T) {
	t.Parallel()
	c := engine(t)
	id := start(t, c, shell(forever))
	sizes := make(chan TermSize, 1)
	sizes <- TermSize{Height: 40, Width: 132}
	var stdout bytes.Buffer
	code, err := c.ExecStream(t.Context(), id, ExecStreamRequest{
		Cmd:    []string{"/bin/sh", "-c", `until [ "$(stty size 2>&1)" = "40 132" ]; do sleep 0.05; done; stty size`},
		TTY:    true,
		Stdout: &stdout,
		Resize: sizes,
	})
	must.NoError(t, err)
	must.Eq(t, 0, code)
	must.Eq(t, "40 132\r\n", stdout.String())
}

func TestExecFailingWriter(t *testing.T) {
	t.Parallel()
	c := engine(t)
	id := start(t, c, shell(forever))
	r, w := io.Pipe()
	must.NoError(t, r.CloseWithError(io.ErrClosedPipe))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := c.ExecStream(ctx, id, ExecStreamRequest{Cmd: []string{"/bin/sh", "-c", "echo x; " + forever}, Stdout: w, Stderr: w})
	must.ErrorIs(t, err, io.ErrClosedPipe)
}
