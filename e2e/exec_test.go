// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"
)

// Input, both outputs and the exit code are passed on.
func testExec(t *testing.T, alloc *api.Allocation) {
	var stdout, stderr bytes.Buffer
	code, err := shared.exec(t, alloc, false, strings.NewReader("in\n"), &stdout, &stderr, nil,
		"sh", "-c", "cat; echo err >&2; exit 43")
	must.NoError(t, err)
	must.Eq(t, 43, code)
	must.Eq(t, "in\n", stdout.String())
	must.Eq(t, "err\n", stderr.String())
}

// A terminal outside is a terminal inside, with the same size, also when the size
// changes.
func testExecTerminal(t *testing.T, alloc *api.Allocation) {
	const wait = `until [ "$(stty size)" = "%s" ]; do usleep 50000; done; echo now %[1]s; `
	sizes := make(chan api.TerminalSize, 1)
	stdin, typing := io.Pipe() // a terminal whose input ends is hung up
	defer typing.Close()
	stdout := &watched{text: "now 33 91", found: func() { sizes <- api.TerminalSize{Height: 20, Width: 70} }}
	sizes <- api.TerminalSize{Height: 33, Width: 91}
	code, err := shared.exec(t, alloc, true, stdin, stdout, io.Discard, sizes,
		"sh", "-c", fmt.Sprintf(wait, "33 91")+fmt.Sprintf(wait, "20 70")+"tty; exit 7")
	must.NoError(t, err)
	must.Eq(t, 7, code)
	must.StrContains(t, stdout.String(), "now 20 70")
	must.StrContains(t, stdout.String(), "/dev/pts/")
}

// Commands typed on a terminal.
func testExecCommandLine(t *testing.T, alloc *api.Allocation) {
	typed := fmt.Sprintf(`stty rows 33 cols 91; %s alloc exec -i -t -task web %s sh -c 'usleep 500000; tty; stty size; exit 5'`,
		os.Getenv("NOMAD"), alloc.ID)
	cmd := exec.Command("script", "--quiet", "--return", "--command", typed, os.DevNull)
	cmd.Env = append(os.Environ(), "NOMAD_ADDR="+shared.vars["NOMAD_ADDR"])
	stdin, err := cmd.StdinPipe() // stays open
	must.NoError(t, err)
	defer stdin.Close()
	out, err := cmd.CombinedOutput()
	must.Error(t, err)
	must.Eq(t, 5, cmd.ProcessState.ExitCode(), must.Sprintf("%s", out))
	must.StrContains(t, string(out), "/dev/pts/")
	must.StrContains(t, string(out), "33 91")
}

// exec runs a command in the task and returns its exit code.
func (c *cluster) exec(t *testing.T, alloc *api.Allocation, tty bool, stdin io.Reader, stdout, stderr io.Writer,
	sizes <-chan api.TerminalSize, command ...string) (int, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return c.nomad.Allocations().Exec(ctx, alloc, "web", tty, command, stdin, stdout, stderr, sizes, nil)
}

// watched is a buffer that reports once when a text has been written.
type watched struct {
	lockedBuffer
	text  string
	found func()
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.lockedBuffer.Write(p)
	if w.found != nil && strings.Contains(w.String(), w.text) {
		w.found()
		w.found = nil
	}
	return n, err
}
