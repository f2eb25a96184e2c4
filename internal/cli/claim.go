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

const claimLong = `Take a slice of a GPU for work outside Nomad, and give it back afterwards.

Nomad may have sold the units a moment ago, so they are taken in two phases.
First the GPU's device plugin makes them unhealthy for Nomad; a task that was
placed by then keeps them, and this command tries others. Once Nomad knows, and
no allocation has them, they are held: no task can take them.

With a command, it runs while the units are held, with CUDA_VISIBLE_DEVICES and
NVIDIA_VISIBLE_DEVICES set to the GPU and GPU_MEM_LIMIT_MIB to the slice, and its
exit code is this command's. Nothing keeps it to its slice. Every few seconds its
units are confirmed in the table: if they were released or the table was restored
from an old copy, they are held again, and if others have them by then, you are
warned. --ttl counts from the last time that they were confirmed. Without a command
the units stay held until "release" or the end of --ttl.

A GPU is named by its UUID or the start of one, as "status" prints it.`

const (
	// settledLooks is how often in a row Nomad must have been seen to leave the
	// units alone: a plan that was made before it knew may still come.
	settledLooks = 5
	// defaultPace is the time between two looks.
	defaultPace = time.Second
	// outsideJob stands in place of a job's name.
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
		Short: "Take a slice of a GPU for work outside Nomad",
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
	flags.StringVar(&c.memory, "memory", "", "`size` of the slice, such as 6GiB; rounded up to whole units")
	flags.DurationVar(&c.ttl, "ttl", 0, "give the slice back by itself after this time, such as 2h; never if 0")
	flags.DurationVar(&c.wait, "wait", 5*time.Minute, "how long to wait until Nomad has let go of the units")
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
		return usageError{errors.New("Nomad must be asked who has the units: give --nomad-address or NOMAD_ADDR")}
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
		return errors.Join(err, h.giveBack(ctx))
	}
	if len(command) == 0 {
		fmt.Fprintf(c.out, "%s\n", h.owner.Alloc)
		fmt.Fprintf(c.err, "%d MiB of GPU %s are held; give them back with: nomad-gpu-mem release %s\n", h.mib, h.gpu, h.owner.Alloc)
		return nil
	}
	return errors.Join(c.runHolding(ctx, h, command), h.giveBack(ctx))
}

// check returns the size that is wanted, in MiB.
func (c *claimCommand) check() (uint64, error) {
	if c.gpu == "" || c.memory == "" {
		return 0, usageError{errors.New("--gpu and --memory are needed")}
	}
	mib, err := parseMiB(c.memory)
	if err != nil {
		return 0, usageError{fmt.Errorf("--memory: %w", err)}
	}
	if !(0 < mib && mib <= profile.LargestMiB) {
		return 0, usageError{fmt.Errorf("--memory: invalid size %q, want more than 0 and at most %d MiB", c.memory, profile.LargestMiB)}
	}
	if c.wait <= 0 {
		return 0, usageError{fmt.Errorf("--wait %s is no time to wait", c.wait)}
	}
	if c.ttl < 0 {
		return 0, usageError{fmt.Errorf("--ttl %s is negative", c.ttl)}
	}
	return uint64(math.Ceil(mib)), nil
}

// holding is units that are requested, and then held.
type holding struct {
	table *allocator.Table
	owner allocator.Owner
	gpu   allocator.GPUID
	mib   uint64
	slice allocator.Booking // its units once the table was read
}

// request does the first phase's part in the table.
func (c *claimCommand) request(ctx context.Context, table *allocator.Table, gpu allocator.GPU, mib uint64, holder string) (*holding, error) {
	unit := gpu.State.UnitMiB
	if unit == 0 {
		return nil, withHealth(fmt.Errorf("GPU %s is not offered", gpu.ID), gpu)
	}
	count := (mib + unit - 1) / unit
	if count > uint64(gpu.State.Units) {
		return nil, fmt.Errorf("GPU %s has %d units of %d MiB, %d are wanted", gpu.ID, gpu.State.Units, unit, count)
	}
	h := &holding{table: table, gpu: gpu.ID, mib: count * unit, owner: allocator.Owner{
		Job: outsideJob, Task: holder, Alloc: newHoldID(), NodeName: gpu.State.Node,
	}}
	h.slice = allocator.Booking{GPU: gpu.ID, UnitMiB: unit, Of: gpu.State.Units, TotalMiB: gpu.State.MemoryMiB}
	err := table.Request(ctx, h.owner, c.wait+time.Minute, allocator.Room{
		GPU: gpu.ID, UnitMiB: unit, Of: gpu.State.Units, Count: int(count), Avoid: gpu.State.Unhealthy,
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

// hold waits until Nomad has let go of the units, and then makes them ours.
func (c *claimCommand) hold(ctx context.Context, client *api.Client, h *holding) error {
	interrupted := ctx
	ctx, cancel := context.WithTimeout(ctx, c.wait)
	defer cancel()
	looks := time.NewTicker(c.pace())
	defer looks.Stop()
	told := ""
	for settled := 0; settled < settledLooks; {
		reason, err := h.stillNomads(ctx, client)
		switch {
		case ctx.Err() != nil:
			return c.gaveUp(interrupted, told)
		case err != nil:
			return err
		}
		settled++
		if reason != "" {
			settled = 0
		}
		if reason != "" && reason != told {
			fmt.Fprintln(c.err, "waiting:", words.Printable(reason))
			told = reason
		}
		select {
		case <-looks.C:
		case <-ctx.Done():
			return c.gaveUp(interrupted, told)
		}
	}
	return h.table.Hold(ctx, h.owner, h.gpu, c.ttl)
}

// pace is the time between two looks.
func (c *claimCommand) pace() time.Duration { return cmp.Or(c.app.Pace, defaultPace) }

// gaveUp is the error of a wait that was too long, or that a person ended.
func (c *claimCommand) gaveUp(interrupted context.Context, reason string) error {
	if err := interrupted.Err(); err != nil {
		return err
	}
	return fmt.Errorf("Nomad has not let go of the units within %s (--wait): %s", c.wait, reason)
}

// stillNomads says why the units may still be Nomad's; "" if they are not.
func (h *holding) stillNomads(ctx context.Context, client *api.Client) (string, error) {
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
	return "", fmt.Errorf("tasks that Nomad had placed already have taken the units of GPU %s; try again, or another GPU", h.gpu)
}

// giveBack also does so if ctx has ended.
func (h *holding) giveBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTime)
	defer cancel()
	if err := h.table.Release(ctx, h.owner, h.owner.Alloc, []allocator.GPUID{h.gpu}); err != nil {
		return fmt.Errorf("the units are still held, give them back with `nomad-gpu-mem release %s`: %w", h.owner.Alloc, err)
	}
	return nil
}

const giveBackTime = 30 * time.Second
