// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package attack

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/consul"
	"nomad-gpu-mem/allocator/consul/consultest"
)

// rowsOfClaims attack units of GPU memory.
func rowsOfClaims() []attack {
	return []attack{
		{
			name: "held-by-another", tries: "to learn who holds units, by asking for them", looks: "events and errors that the task's owner reads",
			operator: `claim_timeout = "1s"`, job: job{script: `true`}, act: askForHeld, look: toldNothing,
		},
		{
			name: "container-renamed", tries: "to run twice on one slice: its container was renamed, the driver restarted, and Nomad starts the task again",
			looks: "containers of the allocation that run", job: job{script: `true`, slice: true}, act: startRenamed, look: runsOnce,
		},
		{
			name: "long-names", tries: "to shut others out of a GPU by a name of 65,320 bytes", looks: "whether another job still gets a slice there",
			needs: needsConsul, job: job{script: `true`}, act: longNames,
		},
	}
}

// askForHeld starts a task on the victim's units.
func askForHeld(s *scene, in *intruder) error {
	task, err := in.alloc.task(in.job.task, "hostile", s.stage.gpus[0].slice(0, 1))
	if err != nil {
		return err
	}
	config := s.plugin.parseTask(in.t, fmt.Sprintf("image = %q\ncommand = \"/bin/sleep\"\nargs = [\"1000\"]", s.stage.baseImage))
	if err := task.EncodeConcreteDriverConfig(config); err != nil {
		return err
	}
	if err := in.startTask(task); err != nil {
		return err
	}
	if in.refused == nil {
		return errors.New("the other job's units were given to the attacker")
	}
	return nil
}

// toldNothing checks that a job's owner reads nothing of another namespace.
func toldNothing(s *scene, in *intruder) error {
	told := s.plugin.messages(in.task.ID)
	if in.refused != nil {
		told += "\n" + in.refused.Error()
	}
	for _, name := range []string{"tenant", "tenant-job", "tenant-group", s.victim.alloc.id} {
		if strings.Contains(told, name) {
			return fmt.Errorf("the task's owner reads %q of another namespace: %s", name, told)
		}
	}
	return nil
}

func startRenamed(s *scene, in *intruder) error {
	if err := in.start("", in.job.script); err != nil || in.refused != nil {
		return errors.Join(err, in.refused)
	}
	if err := s.stage.api.ContainerRename(s.stage.ctx, in.container.ID, "renamed-"+in.alloc.id); err != nil {
		return err
	}
	if err := s.rebootPlugin(); err != nil {
		return err
	}
	return in.start("", in.job.script)
}

// runsOnce checks that at most one container of the allocation runs.
func runsOnce(s *scene, in *intruder) error {
	found, err := s.stage.api.ContainerList(s.stage.ctx, container.ListOptions{})
	if err != nil {
		return err
	}
	running := 0
	for _, c := range found {
		for _, m := range c.Mounts {
			if m.Destination == "/local" && strings.HasPrefix(m.Source, in.alloc.dir) {
				running++
			}
		}
	}
	if running > 1 {
		for _, c := range found {
			if strings.Contains(strings.Join(c.Names, " "), in.alloc.id) {
				s.stage.remove(c.ID)
			}
		}
		return fmt.Errorf("%d containers of the task run on one slice", running)
	}
	return nil
}

func needsConsul(*scene) string {
	if _, err := os.Stat(os.Getenv("CONSUL")); err != nil {
		return "no Consul, and only Consul limits a value: " + err.Error()
	}
	return ""
}

// longNames uses a table in Consul, which limits the size of a value.
func longNames(s *scene, in *intruder) error {
	agent := consultest.Start(in.t)
	agent.Ready(in.t, "")
	other := s.stage.newScene("", func() allocator.Store {
		store, err := consul.New(consul.Config{Address: agent.Address})
		must.NoError(s.t, err)
		return store
	})
	defer other.close()
	hostile, err := other.newIntruder(in.t, attack{job: job{script: `true`, slice: true}})
	if err != nil {
		return err
	}
	task, err := hostile.prepare("app", "", `true`)
	if err != nil {
		return err
	}
	task.TaskGroupName = strings.Repeat("<", 65_320)
	if err := hostile.startTask(task); err != nil {
		return err
	}
	honest, err := other.startSleeper("honest", s.stage.gpus[0].slice(8))
	if err != nil {
		err = fmt.Errorf("another job gets no slice of the GPU any more: %w", err)
	}
	destroyed := within(func() error { return other.plugin.DestroyTask(honest.ID, true) })
	if errors.Is(destroyed, drivers.ErrTaskNotFound) {
		destroyed = nil
	}
	return errors.Join(err, destroyed, other.intact(), hostile.evict())
}
