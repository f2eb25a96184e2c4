// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shoenig/test/must"
	"github.com/shoenig/test/wait"

	"nomad-gpu-mem/allocator"
)

// A command runs once Nomad no longer uses the units, and not before; then they
// are released, and claim exits with its exit code.
func TestClaim_runs_a_command(t *testing.T) {
	t.Parallel()
	b, nomad := oneGPUTable(t), startNomad(t)
	nomad.change = func(looks int, n *fakeNomad) {
		claim, found := b.held()
		must.True(t, found)
		must.Eq(t, allocator.Requested, claim.State)
		switch looks {
		case 2: // Nomad hears of it, and a plan was under way
			n.unhealthy = claim.Units
			n.allocs = append(n.allocs, allocation("late", "running", 20))
		case 4: // that ends
			n.allocs[0].ClientStatus = "complete"
		}
	}
	code, out, errs := b.store.run(t, "claim", "--nomad-address", nomad.URL, "--gpu", string(a10), "--memory", "5500MiB", "--",
		"sh", "-c", "echo $CUDA_VISIBLE_DEVICES $GPU_MEM_LIMIT_MIB; exit 7")
	must.Eq(t, 7, code)
	must.Eq(t, string(a10)+" 6144\n", out)
	must.StrContains(t, errs, "units 15-20 of GPU "+string(a10)+" are still healthy in Nomad")
	must.StrContains(t, errs, "units 20 of GPU "+string(a10)+" belong to task chat/serve (alloc late)")
	must.GreaterEq(t, 4+settledPolls-1, nomad.looks)
	_, found := b.held()
	must.False(t, found)
}

// While a command runs, its units are held again if they were released.
func TestClaim_keeps_its_units(t *testing.T) {
	t.Parallel()
	b, nomad := oneGPUTable(t), startNomad(t)
	nomad.unhealthy = units(0, 21)
	step := filepath.Join(t.TempDir(), "step")
	release := func() {
		claim, found := b.held()
		must.True(t, found)
		must.NoError(t, b.table().Release(t.Context(), claim.Owner, claim.Attempt, []allocator.GPUID{a10}))
	}
	done := make(chan string, 1)
	go func() {
		code, _, errs := b.store.run(t, "claim", "--nomad-address", nomad.URL, "--gpu", string(a10), "--memory", "2GiB", "--",
			"sh", "-c", "touch "+step+"; while [ -e "+step+" ]; do sleep 0.05; done")
		done <- fmt.Sprint(code, errs)
	}()
	eventually := func(condition func() bool) {
		t.Helper()
		must.Wait(t, wait.InitialSuccess(wait.BoolFunc(condition), wait.Timeout(30*time.Second), wait.Gap(10*time.Millisecond)))
	}
	eventually(func() bool { _, err := os.Stat(step); return err == nil })
	release()
	eventually(func() bool { claim, found := b.held(); return found && claim.State == allocator.Held })
	must.NoError(t, os.Remove(step))
	must.StrContains(t, <-done, "are held again")
	_, found := b.held()
	must.False(t, found)
}

// If a task has the units by then, the operator is warned.
func TestClaim_of_units_that_a_task_has(t *testing.T) {
	t.Parallel()
	b := oneGPUTable(t)
	h := &holding{
		table: b.table(), gpu: a10, owner: allocator.Owner{Job: outsideJob, Task: "ada", Alloc: "hold-1"},
		slice: allocator.Booking{GPU: a10, UnitMiB: 1024, Of: 21, Units: units(19, 2)},
	}
	must.StrContains(t, h.keep(t.Context(), 0), "were no longer held, and are held again")
	must.Eq(t, "", h.keep(t.Context(), 0))
	must.NoError(t, h.release(t.Context()))
	b.claim(owner("chat", "serve", "1b2c3d4e", "gpu-node-1"), allocator.Booking{GPU: a10, UnitMiB: 1024, Of: 21, Units: units(0, 21)})
	warning := h.keep(t.Context(), 0)
	must.StrContains(t, warning, "now held by others")
	must.StrContains(t, warning, "chat/serve")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	must.StrContains(t, h.keep(canceled, 0), "cannot confirm the units")
}

func TestClaim_and_release(t *testing.T) {
	t.Parallel()
	b, nomad := oneGPUTable(t), startNomad(t)
	nomad.unhealthy = units(0, 21)
	code, out, errs := b.store.run(t, "claim", "--nomad-address", nomad.URL, "--gpu", "GPU-4f1a9c2e", "--memory", "2GiB", "--ttl", "2h")
	must.Eq(t, ExitOK, code, must.Sprint(errs))
	claim, _ := b.held()
	must.Eq(t, allocator.Held, claim.State)
	must.Eq(t, claim.Alloc+"\n", out)
	must.Eq(t, "gpu-node-1", claim.NodeName)
	must.False(t, claim.ExpiresAt.IsZero())

	code, _, errs = b.store.run(t, "release", claim.Alloc)
	must.Eq(t, ExitOK, code, must.Sprint(errs))
	_, found := b.held()
	must.False(t, found)
	code, _, errs = b.store.run(t, "release", claim.Alloc)
	must.Eq(t, ExitFailure, code)
	must.StrContains(t, errs, "no claim has the ID")
}

// A claim that is given up leaves no request behind.
func TestClaim_given_up(t *testing.T) {
	t.Parallel()
	b, nomad := oneGPUTable(t), startNomad(t)
	code, out, errs := b.store.run(t, "claim", "--nomad-address", nomad.URL, "--gpu", string(a10), "--memory", "2GiB", "--wait", "50ms")
	must.Eq(t, ExitFailure, code)
	must.Eq(t, "", out)
	must.StrContains(t, errs, "Nomad still uses the units")
	_, found := b.held()
	must.False(t, found)
}

// Tasks that Nomad had placed take all the units before they are held.
func TestClaim_overtaken(t *testing.T) {
	t.Parallel()
	b, nomad := oneGPUTable(t), startNomad(t)
	nomad.change = func(looks int, _ *fakeNomad) {
		if looks == 1 {
			b.claim(owner("chat", "serve", "1b2c3d4e", "gpu-node-1"), allocator.Booking{GPU: a10, UnitMiB: 1024, Of: 21, Units: units(0, 20)})
		}
	}
	code, _, errs := b.store.run(t, "claim", "--nomad-address", nomad.URL, "--gpu", string(a10), "--memory", "2GiB")
	must.Eq(t, ExitFailure, code)
	must.StrContains(t, errs, "tasks that Nomad had already placed took the units")
}

func TestClaim_refuses(t *testing.T) {
	t.Parallel()
	for want, args := range map[string]string{
		"--gpu and --memory are required":    "--gpu GPU-4f1a9c2e",
		"invalid size":                       "--gpu GPU-4f1a9c2e --memory much",
		`invalid size "-1GiB"`:               "--gpu GPU-4f1a9c2e --memory -1GiB",
		`invalid size "99TiB"`:               "--gpu GPU-4f1a9c2e --memory 99TiB",
		`"/nonexistent"`:                     "--nomad-address http://127.0.0.1:1 --gpu GPU-4f1a9c2e --memory 1GiB -- /nonexistent",
		"claim must ask Nomad":               "--gpu GPU-4f1a9c2e --memory 1GiB",
		"--ttl must not be negative":         "--gpu GPU-4f1a9c2e --memory 1GiB --ttl -1h",
		"--wait must be positive, got 0s":    "--gpu GPU-4f1a9c2e --memory 1GiB --wait 0",
		"--wait must be positive, got -1m0s": "--gpu GPU-4f1a9c2e --memory 1GiB --wait -1m",
		`invalid URL "foo"`:                  "--nomad-address foo --gpu GPU-4f1a9c2e --memory 1GiB",
		`invalid URL "http://"`:              "--nomad-address http:// --gpu GPU-4f1a9c2e --memory 1GiB",
		"no GPU in the":                      "--nomad-address http://127.0.0.1:1 --gpu GPU-0 --memory 1GiB",
		"21 units of 1024 MiB":               "--nomad-address http://127.0.0.1:1 --gpu GPU-4f1a9c2e --memory 1TiB",
		"127.0.0.1:1":                        "--nomad-address http://127.0.0.1:1 --gpu GPU-4f1a9c2e --memory 1GiB",
	} {
		b := oneGPUTable(t)
		code, _, errs := b.store.run(t, append([]string{"claim"}, strings.Fields(args)...)...)
		must.NotEq(t, ExitOK, code)
		must.StrContains(t, errs, want)
		_, found := b.held()
		must.False(t, found)
	}
}

func TestRelease_of_a_task(t *testing.T) {
	t.Parallel()
	b := oneGPUTable(t)
	task := owner("chat", "serve", "1b2c3d4e", "gpu-node-1")
	b.claim(task, allocator.Booking{GPU: a10, UnitMiB: 1024, Of: 21, Units: units(0, 4)})
	code, _, errs := b.store.run(t, "release", task.Alloc)
	must.Eq(t, ExitFailure, code)
	must.StrContains(t, errs, "belongs to a Nomad task")
	code, _, errs = b.store.run(t, "release", task.Alloc[:8])
	must.Eq(t, ExitFailure, code)
	must.StrContains(t, errs, task.Alloc+" belongs to a Nomad task")
	b.claim(owner("chat", "serve", "1b2c4444", "gpu-node-1"), allocator.Booking{GPU: a10, UnitMiB: 1024, Of: 21, Units: units(4, 4)})
	_, _, errs = b.store.run(t, "release", "1b2c")
	must.StrContains(t, errs, "is the start of several IDs")
	code, _, _ = b.store.run(t, "release")
	must.Eq(t, ExitUsage, code)
}

// The command's exit code counts, also after SIGTERM.
func TestClaim_is_ended_while_its_command_runs(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]int{
		"trap 'exit 0' TERM": ExitOK,
		"trap 'exit 3' TERM": 3,
		"":                   128 + int(syscall.SIGTERM),
	} {
		ctx, end := context.WithCancel(t.Context())
		var out endsWhenWritten = func() { end() }
		c := &claimCommand{app: App{Pace: time.Hour}, out: out, err: io.Discard}
		err := c.runHolding(ctx, &holding{}, []string{"sh", "-c", script + "\necho started; while :; do sleep 0.05; done"})
		must.Eq(t, want, codeOf(err), must.Sprint(script))
	}
}

type endsWhenWritten func()

func (e endsWhenWritten) Write(p []byte) (int, error) { e(); return len(p), nil }

func codeOf(err error) int {
	if err == nil {
		return ExitOK
	}
	return exitCode(err)
}
