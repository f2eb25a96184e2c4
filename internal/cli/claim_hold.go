// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/nomad/api"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/words"
)

// stopTime is how long a command may take to end after SIGTERM.
const stopTime = 10 * time.Second

// commandError reports that the operator's command failed; claim exits with its code.
type commandError struct {
	code int
	err  error
}

func (e *commandError) Error() string { return e.err.Error() }
func (e *commandError) Unwrap() error { return e.err }

// runHolding runs a command while its units are held. When ctx ends it sends the
// command SIGTERM.
func (c *claimCommand) runHolding(ctx context.Context, h *holding, command []string) error {
	run := exec.CommandContext(ctx, command[0], command[1:]...)
	errs := shareable(c.err)
	run.Stdin, run.Stdout, run.Stderr = c.in, c.out, errs
	run.Env = append(os.Environ(),
		"CUDA_VISIBLE_DEVICES="+string(h.gpu), "NVIDIA_VISIBLE_DEVICES="+string(h.gpu),
		fmt.Sprintf("GPU_MEM_LIMIT_MIB=%d", h.mib))
	run.Cancel = func() error { return run.Process.Signal(syscall.SIGTERM) }
	run.WaitDelay = stopTime
	stop := c.keepHolding(ctx, h, errs)
	err := run.Run()
	stop()
	if run.ProcessState == nil {
		return err // it did not start
	}
	if code := exitCodeOf(run.ProcessState); code != ExitOK {
		return &commandError{code: code, err: fmt.Errorf("%s: %s", command[0], run.ProcessState)}
	}
	return nil // also after SIGTERM
}

// keepEvery is the interval between two confirmations, in multiples of the pace.
const keepEvery = 5

// keepHolding confirms the units in the table until stop is called. It prints each new
// reason why it cannot, once.
func (c *claimCommand) keepHolding(ctx context.Context, h *holding, errs io.Writer) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		ticks := time.NewTicker(keepEvery * c.pace())
		defer ticks.Stop()
		for printed := ""; ; {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
			warning := h.keep(ctx, c.ttl)
			if ctx.Err() == nil && warning != "" && warning != printed {
				fmt.Fprintln(errs, "warning:", words.Printable(warning))
			}
			printed = warning
		}
	})
	return func() {
		cancel()
		watch.Wait()
	}
}

// shareable returns a writer that the command and this program may use concurrently. A file
// is one already and is returned as it is: the command may need a terminal.
func shareable(w io.Writer) io.Writer {
	if _, isFile := w.(*os.File); isFile {
		return w
	}
	return &lockedWriter{to: w}
}

type lockedWriter struct {
	mu sync.Mutex
	to io.Writer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}

// keep confirms the units once. It returns what the operator should know, "" if nothing.
func (h *holding) keep(ctx context.Context, ttl time.Duration) (warning string) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	restored, err := h.table.Keep(ctx, h.owner, ttl, h.slice)
	held := &allocator.HeldError{}
	switch {
	case errors.As(err, &held):
		return fmt.Sprintf("units of this command are now held by others, so one of them may run out of memory: %v; end this command or theirs", held)
	case err != nil:
		return fmt.Sprintf("cannot confirm the units of GPU %s: %v", h.gpu, err)
	case restored:
		return fmt.Sprintf("units %s of GPU %s were no longer held, and are held again", h.slice.Units, h.gpu)
	}
	return ""
}

// exitCodeOf returns a process's exit code as shells report it: 128 plus the signal's
// number if a signal ended it.
func exitCodeOf(ended *os.ProcessState) int {
	if status, ok := ended.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return ended.ExitCode()
}

// unitsInNomad returns why Nomad may still use the units: it may offer them, or an
// allocation has them. It returns "" if neither holds.
func unitsInNomad(ctx context.Context, client *api.Client, gpu allocator.GPUID, units allocator.UnitSet) (string, error) {
	query := (&api.QueryOptions{Params: map[string]string{"resources": "true"}}).WithContext(ctx)
	nodes, _, err := client.Nodes().List(query)
	if err != nil {
		return "", fmt.Errorf("cannot list the nodes of Nomad at %s: %w", client.Address(), err)
	}
	if offered := healthyUnits(nodes, gpu).Intersect(units); len(offered) > 0 {
		return fmt.Sprintf("units %s of GPU %s are still healthy in Nomad", offered, gpu), nil
	}
	evidence, err := nomadEvidence(ctx, client)
	if err != nil {
		return "", err
	}
	for id, alloc := range evidence.Allocs {
		for name, task := range alloc.Tasks {
			if used := task.Units[gpu].Intersect(units); len(used) > 0 && !alloc.Ended {
				return fmt.Sprintf("units %s of GPU %s belong to task %s", used, gpu,
					allocator.Owner{Job: alloc.Job, Task: name, Alloc: id}), nil
			}
		}
	}
	return "", nil
}

// healthyUnits returns the units of a GPU that Nomad may book.
func healthyUnits(nodes []*api.NodeListStub, gpu allocator.GPUID) allocator.UnitSet {
	var healthy []int
	for _, node := range nodes {
		if node.NodeResources == nil {
			continue
		}
		for _, group := range node.NodeResources.Devices {
			if group.Vendor != allocator.DeviceVendor || group.Type != allocator.DeviceType || group.Name != string(gpu) {
				continue
			}
			for _, instance := range group.Instances {
				if _, unit, err := allocator.ParseUnitID(instance.ID); err == nil && instance.Healthy {
					healthy = append(healthy, unit)
				}
			}
		}
	}
	return allocator.NewUnitSet(healthy...)
}
