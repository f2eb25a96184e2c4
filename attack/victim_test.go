// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package attack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/allocator"
)

// victim is another job's task, in another namespace, with a slice of the first GPU.
type victim struct {
	alloc     *allocation
	task      *drivers.TaskConfig
	container container.InspectResponse
	files     string // its hosts and resolv.conf
	claim     string
}

func (s *scene) startVictim() error {
	task, err := s.startSleeper("bank", s.stage.gpus[0].slice(0, 1))
	if err != nil {
		return err
	}
	alloc := &allocation{id: task.AllocID, dir: task.AllocDir}
	v := &victim{alloc: alloc, task: task}
	if v.container, err = s.stage.inspect("bank_" + alloc.id); err != nil {
		return err
	}
	if v.files, err = v.networkFiles(); err != nil {
		return err
	}
	if v.claim, err = s.claimOf(alloc.id); err != nil {
		return err
	}
	if v.claim == "" {
		return errors.New("the victim has no claim")
	}
	s.victim = v
	return nil
}

// networkFiles are those by which the victim finds others, as it sees them.
func (v *victim) networkFiles() (string, error) {
	var all strings.Builder
	for _, name := range []string{"hosts", "resolv.conf"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/etc/%s", v.container.State.Pid, name))
		if err != nil {
			return "", err
		}
		onHost, err := os.ReadFile(filepath.Join(filepath.Dir(v.container.ResolvConfPath), name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&all, "%s:\n%s%s", name, text, onHost)
	}
	return all.String(), nil
}

func (s *scene) checkVictim() error {
	v := s.victim
	now, err := s.stage.inspect(v.container.ID)
	if err != nil {
		return fmt.Errorf("the other job's container: %w", err)
	}
	if !now.State.Running || now.State.StartedAt != v.container.State.StartedAt || now.Name != v.container.Name {
		return fmt.Errorf("the other job's container was ended, restarted or renamed: it is %s", now.State.Status)
	}
	if files, err := v.networkFiles(); err != nil || files != v.files {
		return fmt.Errorf("the other job's network files were changed (%v):\n%s\nnow:\n%s", err, v.files, files)
	}
	if claim, err := s.claimOf(v.alloc.id); err != nil || claim != v.claim {
		return fmt.Errorf("the other job's claim is %q and was %q (%v)", claim, v.claim, err)
	}
	if !hasDeviceLists() {
		gpus, err := s.stage.reached(now.ID)
		if err == nil && !slices.Equal(gpus, []int{0}) {
			err = fmt.Errorf("the other job reaches the GPUs %v", gpus)
		}
		return err
	}
	for i, g := range s.stage.gpus {
		if open, err := allowed(now.State.Pid, g.node); err != nil || open != (i == 0) {
			return fmt.Errorf("the other job's access to GPU %d is %t (%v)", i, open, err)
		}
	}
	return nil
}

// victimHandle is the victim's handle in Nomad: a second start returns that of the first.
func (s *scene) victimHandle() (*drivers.TaskHandle, error) {
	handle, _, err := s.plugin.StartTask(s.victim.task)
	return handle, err
}

// holdUnits makes a third job's task hold units, as a task that stops slowly does, until
// release is called.
func (s *scene) holdUnits(b allocator.Booking) (release func() error, err error) {
	task, err := s.startSleeper("slow", b)
	if err != nil {
		return nil, err
	}
	return func() error {
		return within(func() error { return s.plugin.DestroyTask(task.ID, true) })
	}, nil
}

// startSleeper runs a task of an honest job in the victim's namespace.
func (s *scene) startSleeper(name string, bookings ...allocator.Booking) (*drivers.TaskConfig, error) {
	alloc, err := newAllocation(s.dir, name)
	if err != nil {
		return nil, err
	}
	task, err := alloc.task(name, "tenant", bookings...)
	if err != nil {
		return nil, err
	}
	config := s.plugin.parseTask(s.t, fmt.Sprintf("image = %q\ncommand = \"/bin/sleep\"\nargs = [\"100000\"]", victimImage))
	if err := task.EncodeConcreteDriverConfig(config); err != nil {
		return nil, err
	}
	return task, within(func() error { _, _, err := s.plugin.StartTask(task); return err })
}
