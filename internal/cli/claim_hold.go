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

// stopTime is how long a command may take to end when it is asked to.
const stopTime = 10 * time.Second

// commandError says that a person's command failed. Its exit code is ours.
type commandError struct {
	code int
	err  error
}

func (e *commandError) Error() string { return e.err.Error() }
func (e *commandError) Unwrap() error { return e.err }

// runHolding runs a command on units that are held. When ctx ends the command is
// asked to end.
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
		return err // it did not even start
	}
	if code := exitCodeOf(run.ProcessState); code != ExitOK {
		return &commandError{code: code, err: fmt.Errorf("%s: %s", command[0], run.ProcessState)}
	}
	return nil // also if it was asked to end
}

// keepEvery is how many times the pace lies between two looks at units that are in use.
const keepEvery = 5

// keepHolding confirms the units in the table until stop is called, and warns when that
// is not possible: each reason once.
func (c *claimCommand) keepHolding(ctx context.Context, h *holding, errs io.Writer) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		looks := time.NewTicker(keepEvery * c.pace())
		defer looks.Stop()
		for told := ""; ; {
			select {
			case <-ctx.Done():
				return
			case <-looks.C:
			}
			warning := h.keep(ctx, c.ttl)
			if ctx.Err() == nil && warning != "" && warning != told {
				fmt.Fprintln(errs, "warning:", words.Printable(warning))
			}
			told = warning
		}
	})
	return func() {
		cancel()
		watch.Wait()
	}
}

// shareable makes a writer that the command and this program may write to at once. A file
// is one, and stays what it is: the command may want a terminal.
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

// keep confirms the units once, and says what a person should know.
func (h *holding) keep(ctx context.Context, ttl time.Duration) (warning string) {
	ctx, cancel := context.WithTimeout(ctx, giveBackTime)
	defer cancel()
	restored, err := h.table.Keep(ctx, h.owner, ttl, h.slice)
	held := &allocator.HeldError{}
	switch {
	case errors.As(err, &held):
		return fmt.Sprintf("the units of this command went to others, who may run out of memory: %v; end this command or theirs", held)
	case err != nil:
		return fmt.Sprintf("the units of GPU %s cannot be confirmed: %v", h.gpu, err)
	case restored:
		return fmt.Sprintf("units %s of GPU %s were no longer held, and are held again", h.slice.Units, h.gpu)
	}
	return ""
}

// exitCodeOf is a process's exit code as shells tell it: 128 and the number of the
// signal that ended it.
func exitCodeOf(ended *os.ProcessState) int {
	if status, ok := ended.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return ended.ExitCode()
}

// unitsInNomad says why units may still be in use by Nomad's tasks: Nomad offers
// them, or an allocation has them. It is "" if neither is so.
func unitsInNomad(ctx context.Context, client *api.Client, gpu allocator.GPUID, units allocator.UnitSet) (string, error) {
	query := (&api.QueryOptions{Params: map[string]string{"resources": "true"}}).WithContext(ctx)
	nodes, _, err := client.Nodes().List(query)
	if err != nil {
		return "", fmt.Errorf("asking Nomad at %s for its nodes: %w", client.Address(), err)
	}
	if offered := healthyUnits(nodes, gpu).Intersect(units); len(offered) > 0 {
		return fmt.Sprintf("Nomad is still offered units %s of GPU %s", offered, gpu), nil
	}
	evidence, err := nomadEvidence(ctx, client)
	if err != nil {
		return "", err
	}
	for id, alloc := range evidence.Allocs {
		for name, task := range alloc.Tasks {
			if used := task.Units[gpu].Intersect(units); len(used) > 0 && !alloc.Ended {
				return fmt.Sprintf("units %s of GPU %s are %s's", used, gpu,
					allocator.Owner{Job: alloc.Job, Task: name, Alloc: id}), nil
			}
		}
	}
	return "", nil
}

// healthyUnits are the units of a GPU that Nomad may sell.
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
