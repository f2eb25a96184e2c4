// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os/exec"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/spf13/cobra"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/profile"
	"nomad-gpu-mem/internal/words"
)

const claimLong = `Hold a slice of a GPU for work outside Nomad, and release it afterwards.

Nomad may have booked the units a moment ago, so they are held in two phases.
First the GPU's device plugin reports them to Nomad as unhealthy; a task that was
placed by then keeps them, and this command tries others. Once Nomad knows, and
no allocation has them, they are held: no task can take them.

With a COMMAND, claim runs it while the units are held, with CUDA_VISIBLE_DEVICES and
NVIDIA_VISIBLE_DEVICES set to the GPU and GPU_MEM_LIMIT_MIB to the slice, and exits
with its exit code. Nothing enforces the slice. Every few seconds claim confirms the
units in the table. If they were released or the table was restored from an old copy,
it holds them again; if others hold them by then, it prints a warning. --ttl counts
from the last confirmation. Without a COMMAND the units stay held until "release" or
the end of --ttl.

A GPU is named by its UUID or the start of one, as "status" prints it.`

const (
	// settledPolls is how many polls in a row must find the units unused by Nomad: Nomad
	// may still apply a plan that it made while they were healthy.
	settledPolls = 5
	// defaultPace is the polling interval.
	defaultPace = time.Second
	// outsideJob is the job name of a claim that no Nomad job owns.
	outsideJob = "outside-nomad"
)

// claimCommand is one call of `claim`.
type claimCommand struct {
	app      App
	table    *tableFlags
	nomad    *nomadFlags
	gpu      string
	memory   string
	ttl      time.Duration
	wait     time.Duration
	in       io.Reader
	out, err io.Writer
}

func (a App) newClaim(table *tableFlags) *cobra.Command {
	c := &claimCommand{app: a, table: table, nomad: &nomadFlags{getenv: a.Getenv}}
	cmd := &cobra.Command{
		Use:   "claim [-- COMMAND...]",
		Short: "Hold a slice of a GPU for work outside Nomad",
		Long:  claimLong + "\n\n" + nomadHelp + "\n\n" + tableHelp + "\n\n" + exitHelp,
		Example: "  nomad-gpu-mem claim --gpu GPU-4f1a9c2e --memory 6GiB -- python train.py\n" +
			"  nomad-gpu-mem claim --gpu GPU-4f1a9c2e --memory 6GiB --ttl 2h",
		RunE: func(cmd *cobra.Command, args []string) error {
			c.in, c.out, c.err = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
			return c.run(cmd.Context(), args)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&c.gpu, "gpu", "", "the GPU with this `UUID`, or the start of one")
	flags.StringVar(&c.memory, "memory", "", "`size` of the slice, for example 6GiB; rounded up to whole units")
	flags.DurationVar(&c.ttl, "ttl", 0, "release the slice after this `time`, for example 2h; 0 is never")
	flags.DurationVar(&c.wait, "wait", 5*time.Minute, "how long to wait until Nomad no longer uses the units")
	c.nomad.register(flags)
	return cmd
}

func (c *claimCommand) run(ctx context.Context, command []string) error {
	mib, err := c.check()
	if err != nil {
		return err
	}
	if len(command) > 0 { // before anything is claimed for it
		if _, err := exec.LookPath(command[0]); err != nil {
			return usageError{err}
		}
	}
	client, err := c.nomad.open()
	if err != nil {
		return err
	}
	if client == nil {
		return usageError{errors.New("claim must ask Nomad which units are in use: set --nomad-address or NOMAD_ADDR")}
	}
	table, snapshot, err := c.app.openToChange(ctx, c.table)
	if err != nil {
		return err
	}
	defer table.Close()
	gpu, err := named(snapshot.GPUs, c.gpu)
	if err == nil {
		err = claimable(snapshot, gpu, c.app.Now())
	}
	if err != nil {
		return err
	}
	h, err := c.request(ctx, table, gpu, mib, c.app.holder(len(command) > 0))
	if err != nil {
		return err
	}
	if err := c.hold(ctx, client, h); err != nil {
		return errors.Join(err, h.release(ctx))
	}
	if len(command) == 0 {
		fmt.Fprintf(c.out, "%s\n", h.owner.Alloc)
		fmt.Fprintf(c.err, "%d MiB of GPU %s are held; release them with: nomad-gpu-mem release %s\n", h.mib, h.gpu, h.owner.Alloc)
		return nil
	}
	return errors.Join(c.runHolding(ctx, h, command), h.release(ctx))
}

// check validates the flags and returns the size of the slice in MiB.
func (c *claimCommand) check() (uint64, error) {
	if c.gpu == "" || c.memory == "" {
		return 0, usageError{errors.New("--gpu and --memory are required")}
	}
	mib, err := parseMiB(c.memory)
	if err != nil {
		return 0, usageError{fmt.Errorf("--memory: %w", err)}
	}
	if !(0 < mib && mib <= profile.LargestMiB) {
		return 0, usageError{fmt.Errorf("--memory: invalid size %q, want more than 0 and at most %d MiB", c.memory, profile.LargestMiB)}
	}
	if c.wait <= 0 {
		return 0, usageError{fmt.Errorf("--wait must be positive, got %s", c.wait)}
	}
	if c.ttl < 0 {
		return 0, usageError{fmt.Errorf("--ttl must not be negative, got %s", c.ttl)}
	}
	return uint64(math.Ceil(mib)), nil
}

// holding is a set of units that is first requested, then held.
type holding struct {
	table *allocator.Table
	owner allocator.Owner
	gpu   allocator.GPUID
	mib   uint64
	slice allocator.Booking // its Units are known after the first read of the table
}

// request is the first phase: it writes the request for units into the table.
func (c *claimCommand) request(ctx context.Context, table *allocator.Table, gpu allocator.GPU, mib uint64, holder string) (*holding, error) {
	unit := gpu.State.UnitMiB
	if unit == 0 {
		return nil, withHealth(fmt.Errorf("GPU %s is not offered", gpu.ID), gpu)
	}
	count := (mib + unit - 1) / unit
	if count > uint64(gpu.State.Units) {
		return nil, fmt.Errorf("GPU %s has %d units of %d MiB, --memory needs %d", gpu.ID, gpu.State.Units, unit, count)
	}
	h := &holding{table: table, gpu: gpu.ID, mib: count * unit, owner: allocator.Owner{
		Job: outsideJob, Task: holder, Alloc: newHoldID(), NodeName: gpu.State.Node,
	}}
	h.slice = allocator.Booking{GPU: gpu.ID, UnitMiB: unit, Of: gpu.State.Units, TotalMiB: gpu.State.MemoryMiB}
	err := table.Request(ctx, h.owner, c.wait+time.Minute, allocator.UnitRequest{
		GPU: gpu.ID, UnitMiB: unit, TotalUnits: gpu.State.Units, Count: int(count), Avoid: gpu.State.Unhealthy,
	})
	if errors.Is(err, allocator.ErrNoRoom) {
		return nil, withHealth(err, gpu)
	}
	if err != nil {
		return nil, c.table.explainChange(err)
	}
	return h, nil
}

func newHoldID() string {
	random := make([]byte, 4)
	_, _ = rand.Read(random) // never fails
	return "hold-" + hex.EncodeToString(random)
}

// hold is the second phase: it waits until Nomad no longer uses the units, then holds them.
func (c *claimCommand) hold(ctx context.Context, client *api.Client, h *holding) error {
	interrupted := ctx
	ctx, cancel := context.WithTimeout(ctx, c.wait)
	defer cancel()
	poll := time.NewTicker(c.pace())
	defer poll.Stop()
	reported := ""
	for settled := 0; settled < settledPolls; {
		reason, err := h.usedByNomad(ctx, client)
		switch {
		case ctx.Err() != nil:
			return c.waitEnded(interrupted, reported)
		case err != nil:
			return err
		}
		settled++
		if reason != "" {
			settled = 0
		}
		if reason != "" && reason != reported {
			fmt.Fprintln(c.err, "waiting:", words.Printable(reason))
			reported = reason
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return c.waitEnded(interrupted, reported)
		}
	}
	return h.table.Hold(ctx, h.owner, h.gpu, c.ttl)
}

// pace is the polling interval.
func (c *claimCommand) pace() time.Duration { return cmp.Or(c.app.Pace, defaultPace) }

// waitEnded is the error of a wait that timed out or was interrupted.
func (c *claimCommand) waitEnded(interrupted context.Context, reason string) error {
	if err := interrupted.Err(); err != nil {
		return err
	}
	return fmt.Errorf("Nomad still uses the units after %s (--wait): %s", c.wait, reason)
}

// usedByNomad returns why Nomad may still use the units; "" if it does not.
func (h *holding) usedByNomad(ctx context.Context, client *api.Client) (string, error) {
	gpu, err := h.table.Inspect(ctx, h.gpu)
	if err != nil {
		return "", err
	}
	for _, claim := range gpu.Claims() {
		if claim.Is(h.owner) {
			h.slice.Units = claim.Units
			return unitsInNomad(ctx, client, h.gpu, claim.Units)
		}
	}
	return "", fmt.Errorf("tasks that Nomad had already placed took the units of GPU %s; try again, or another GPU", h.gpu)
}

// release releases the units, also if ctx has ended.
func (h *holding) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := h.table.Release(ctx, h.owner, h.owner.Alloc, []allocator.GPUID{h.gpu}); err != nil {
		return fmt.Errorf("cannot release the units, they are still held; run `nomad-gpu-mem release %s`: %w", h.owner.Alloc, err)
	}
	return nil
}

const releaseTimeout = 30 * time.Second
