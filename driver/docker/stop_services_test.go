// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package docker

import (
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

// deaf notes every signal that can be caught and lives on.
const deaf = `
for s in TERM INT USR1 USR2 QUIT; do trap "echo $s" $s; done
echo ready
while :; do sleep 0.05; done`

// TestStopSequence pins which signals a container sees. What can be caught is in its output; the last, SIGKILL, in its code.
func TestStopSequence(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, signal, stopSignal string
		timeout                  time.Duration
		want                     []string
		least                    int // SIGKILL follows a signal without a timeout so soon that it may go unnoted
	}{
		{"nothing asked for", "", "", time.Second, []string{"TERM"}, 1},
		{"the image's own", "", "SIGUSR1", time.Second, []string{"USR1"}, 1},
		{"the job's", "SIGINT", "", time.Second, []string{"INT", "TERM"}, 1},
		{"the job's, then the image's", "SIGUSR2", "SIGUSR1", time.Second, []string{"USR2", "USR1"}, 1},
		{"SIGTERM both times", "SIGTERM", "", time.Second, []string{"TERM", "TERM"}, 1},
		{"no time at all", "SIGINT", "SIGQUIT", 0, []string{"INT", "QUIT"}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := engine(t)
			spec := shell(deaf)
			spec.Config.StopSignal = tc.stopSignal
			id := start(t, c, spec)
			awaitLine(t, c, id, "ready")

			began := time.Now()
			must.NoError(t, c.Stop(t.Context(), id, tc.signal, tc.timeout))
			must.GreaterEq(t, tc.timeout, time.Since(began))
			exit, err := c.Wait(t.Context(), id)
			must.NoError(t, err)
			must.Eq(t, 137, exit.Code)

			stdout, _ := output(t, c, id, false)
			seen := strings.Fields(strings.TrimPrefix(stdout, "ready\n"))
			must.Between(t, tc.least, len(seen), len(tc.want))
			must.Eq(t, tc.want[:len(seen)], seen)
		})
	}
}

func TestStopOfAnObedientContainer(t *testing.T) {
	t.Parallel()
	c := engine(t)
	for _, signal := range []string{"", "SIGUSR1"} {
		id := start(t, c, shell(`trap "exit 3" TERM USR1; echo ready; while :; do sleep 0.05; done`))
		awaitLine(t, c, id, "ready")
		must.NoError(t, c.Stop(t.Context(), id, signal, time.Hour)) // not killed: it would take the hour
		exit, err := c.Wait(t.Context(), id)
		must.NoError(t, err)
		must.Eq(t, 3, exit.Code)

		must.NoError(t, c.Stop(t.Context(), id, signal, time.Hour)) // stopped already
		must.ErrorIs(t, c.Signal(t.Context(), id, "SIGHUP"), ErrNotRunning)
	}
}

func TestSignal(t *testing.T) {
	t.Parallel()
	c := engine(t)
	id := start(t, c, shell(`trap "echo reloaded" HUP; echo ready; while :; do sleep 0.05; done`))
	awaitLine(t, c, id, "ready")
	must.NoError(t, c.Signal(t.Context(), id, "SIGHUP"))
	awaitLine(t, c, id, "reloaded")
	must.ErrorContains(t, c.Signal(t.Context(), id, "SIGNONSENSE"), "SIGNONSENSE")
	must.ErrorContains(t, c.Stop(t.Context(), id, "SIGNONSENSE", time.Second), "SIGNONSENSE")
}
