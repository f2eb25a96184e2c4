// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package soak

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/e2e/soak/model"
)

// settle waits until nothing changes any more, and returns the inventory.
func (s *soak) settle(t *testing.T) model.Remains {
	t.Helper()
	var last model.Remains
	for range int(time.Minute / settleStep) {
		now, err := s.collect(t.Context())
		if err == nil && last != nil && len(now["claim"])+len(now["container"])+len(now["allocation"]) == 0 &&
			len(model.Leaks(last, now))+len(model.Leaks(now, last)) == 0 {
			return now
		}
		last = now
		wait(t.Context(), settleStep)
	}
	must.Unreachable(t, must.Sprintf("the cluster is not quiet before the soak: %v", last))
	return nil
}

const settleStep = 3 * time.Second

// isOthers reports whether a leak belongs to Nomad's agent or Docker's daemon, which leave it
// when they are killed; no plugin knows it. These are a log collector, if its allocation ended
// while there was no agent, the file of a network namespace without a container, and a shim
// without a task in containerd. A daemon that is killed while it makes or removes a container
// also leaves a link in a bridge. Containers belong to the driver and count as leaks.
func isOthers(leak model.Leak) bool {
	switch leak.Kind {
	case "group's address", "firewall rule", "network namespace", "network link":
		return true
	case "process":
		return leak.Item == "nomad logmon" || leak.Item == "containerd-shim-runc-v2"
	}
	return false
}

// leaks returns the items that did not exist at the beginning, without those of isOthers.
func (s *soak) leaks(begin, end model.Remains) (ours, others []model.Leak) {
	for _, leak := range model.Leaks(begin, end) {
		if isOthers(leak) {
			others = append(others, leak)
		} else {
			ours = append(ours, leak)
		}
	}
	return append(ours, s.gauges.leaks()...), others
}

// settleTo waits until there is no leak, or until the time limit, and returns the inventory.
func (s *soak) settleTo(t *testing.T, begin model.Remains) (end model.Remains) {
	t.Helper()
	s.awaitUnstaged(t)
	begun, told := time.Now(), time.Now()
	for deadline := time.Now().Add(quietTime); ; wait(t.Context(), settleStep) {
		now, err := s.collect(t.Context())
		if err == nil {
			end = now
		}
		leaks, _ := s.leaks(begin, end)
		if err == nil && len(leaks) == 0 {
			return end
		}
		if time.Now().After(deadline) {
			must.NoError(t, err)
			return end
		}
		if time.Since(begun) > residueTime {
			s.removeSandboxes(t)
			s.removeDirectories(t, leaks)
		}
		if time.Since(told) > progressFor {
			told = time.Now()
			fmt.Printf("%6s  the cluster is not quiet yet: %s\n", time.Since(begun).Round(time.Second), summary(leaks, err))
		}
	}
}

// summary returns the leaks by kind, with an example.
func summary(leaks []model.Leak, err error) string {
	if err != nil {
		return err.Error()
	}
	counts := map[string]int{}
	for _, leak := range leaks {
		counts[leak.Kind]++
	}
	return fmt.Sprintf("%v, such as %s", counts, leaks[0].Item)
}

// collect makes Nomad collect its garbage, and returns the inventory.
func (s *soak) collect(ctx context.Context) (model.Remains, error) {
	if err := s.nomad.System().GarbageCollect(); err != nil {
		return nil, err
	}
	return s.inventory(ctx)
}

// sellTime bounds how long it may take to sell every unit: GPUs that failed may be on
// probation.
const sellTime = 4 * time.Minute

// sellAll runs one task on each GPU that holds all of its units, which shows that neither
// Nomad nor the table has lost any, and ends them.
func (s *soak) sellAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sellTime)
	defer cancel()
	for gpu := range s.gpus.GPUs {
		job := formOf("service").job(fmt.Sprintf("all-of-%d", gpu), model.Request{Units: []uint64{uint64(s.units(gpu))}, Count: 1}, 0)
		task := job.TaskGroups[0].Tasks[0]
		task.Resources.Devices[0].Name = "nvidia/gpu-mem/" + s.gpus.GPUs[gpu].UUID
		task.Config["volumes"] = []string{"local/data:/data"} // makes the driver create its directory for mounts
		if _, _, err := s.nomad.Jobs().Register(job, nil); err != nil {
			return err
		}
	}
	for {
		waiting, err := s.notRunning()
		if err == nil && len(waiting) == 0 {
			return nil
		}
		if !wait(ctx, time.Second) {
			return errors.Join(fmt.Errorf("after %s no task that wants all units runs on %v", sellTime, waiting), err)
		}
	}
}

// notRunning returns the GPUs on which the task for all units does not run.
func (s *soak) notRunning() (waiting []string, err error) {
	for gpu := range s.gpus.GPUs {
		allocs, _, err := s.nomad.Jobs().Allocations(fmt.Sprintf("all-of-%d", gpu), false, nil)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(allocs, func(a *api.AllocationListStub) bool { return a.ClientStatus == api.AllocClientStatusRunning }) {
			waiting = append(waiting, s.gpus.GPUs[gpu].UUID)
		}
	}
	return waiting, nil
}
