// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"nomad-gpu-mem/e2e/soak/model"
)

// containerFaults are operations on containers without the driver.
var containerFaults = []fault{
	{"container renamed", 4, toContainer(func(ctx context.Context, on *client.Client, run model.Run, _ *soak) error {
		return on.ContainerRename(ctx, run.ID, fmt.Sprintf("renamed-%d", time.Now().UnixNano()))
	}, nil), 0},
	{"container renamed, its task restarted", 3, toContainer(func(ctx context.Context, on *client.Client, run model.Run, s *soak) error {
		err := on.ContainerRename(ctx, run.ID, fmt.Sprintf("renamed-%d", time.Now().UnixNano()))
		return errors.Join(err, s.restartTask(run.Task))
	}, nil), 0},
	{"container removed", 4, toContainer(func(ctx context.Context, on *client.Client, run model.Run, _ *soak) error {
		return on.ContainerRemove(ctx, run.ID, container.RemoveOptions{Force: true})
	}, nil), 0},
	{"container killed", 3, toContainer(func(ctx context.Context, on *client.Client, run model.Run, _ *soak) error {
		return on.ContainerKill(ctx, run.ID, "KILL")
	}, nil), 0},
	{"container paused", 3, toContainer(pauseContainer, unpause), 3 * time.Second},
	{"container paused, its task stopped", 4, toContainer(func(ctx context.Context, on *client.Client, run model.Run, s *soak) error {
		return errors.Join(pauseContainer(ctx, on, run, s), s.evict(run.Task))
	}, unpause), 6 * time.Second},
}

type containerAction = func(context.Context, *client.Client, model.Run, *soak) error

// toContainer applies an operation to a running container with a slice.
func toContainer(do, undo containerAction) strike {
	return func(s *soak, random *rand.Rand) (func() error, error) {
		running := s.observer.running()
		if len(running) == 0 {
			return nil, errNothing
		}
		run := running[random.IntN(len(running))]
		on := s.machineNamed(run.Engine).docker
		act := func(action containerAction) error {
			ctx, cancel := context.WithTimeout(context.Background(), answerTime)
			defer cancel()
			return action(ctx, on, run, s)
		}
		if err := act(do); err != nil {
			if undo != nil {
				_ = act(undo)
			}
			return nil, errors.Join(errNothing, err) // it ended just then, or its engine is down
		}
		if undo == nil {
			return nil, nil
		}
		return func() error { return act(undo) }, nil
	}
}

func pauseContainer(ctx context.Context, on *client.Client, run model.Run, _ *soak) error {
	return on.ContainerPause(ctx, run.ID)
}

// unpause resumes a container. It ignores a container that is gone or has ended while paused,
// and an engine that is down.
func unpause(ctx context.Context, on *client.Client, run model.Run, _ *soak) error {
	_ = on.ContainerUnpause(ctx, run.ID)
	return nil
}

func (s *soak) restartTask(task model.Task) error {
	alloc, _, err := s.nomad.Allocations().Info(task.Alloc, nil)
	if err != nil {
		return err
	}
	return s.nomad.Allocations().Restart(alloc, task.Name, nil)
}

func (s *soak) evict(task model.Task) error {
	alloc, _, err := s.nomad.Allocations().Info(task.Alloc, nil)
	if err != nil {
		return err
	}
	_, err = s.nomad.Allocations().Stop(alloc, nil)
	return err
}

func (c *cluster) machineNamed(name string) *machine {
	for _, m := range c.machines {
		if m.name() == name {
			return m
		}
	}
	panic("no machine " + name)
}
