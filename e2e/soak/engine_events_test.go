// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package soak

import (
	"context"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"

	"nomad-gpu-mem/e2e/soak/model"
)

// Labels by which the driver's containers name their task and their GPUs.
const (
	labelAttempt = "nomad-gpu-mem.task_id"
	labelGPUs    = "nomad-gpu-mem.gpus"
	labelSandbox = "nomad-gpu-mem.sandbox" // of pause containers
)

// follow reports the events of an engine's containers, in order, until ctx ends. After a
// pause of the engine it reports the list of running containers instead of missed events.
func (o *observer) follow(ctx context.Context, m *machine) {
	heard := time.Now() // time of the last event, or of the last check that none was missed
	for ctx.Err() == nil {
		running, err := o.listRunning(ctx, m)
		if err == nil {
			o.listed(m, running, heard)
			heard = o.listen(ctx, m, heard)
		}
		wait(ctx, 200*time.Millisecond)
	}
}

// listen reports events from a time on, until the stream breaks, and returns the time of
// the last one.
func (o *observer) listen(ctx context.Context, m *machine, since time.Time) time.Time {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, broken := m.docker.Events(ctx, events.ListOptions{
		Since:   since.Format(time.RFC3339Nano),
		Filters: filters.NewArgs(filters.Arg("type", "container"), filters.Arg("label", labelAttempt)),
	})
	for {
		select {
		case event := <-stream:
			since = time.Unix(0, event.TimeNano)
			switch event.Action {
			case events.ActionStart:
				o.started(containerOf(m, event.Actor.ID, event.Actor.Attributes["name"], event.Actor.Attributes), since)
			case events.ActionDie:
				o.ended(event.Actor.ID, since)
			}
		case <-broken:
			return since
		}
	}
}

// life of a container that runs.
type livingContainer struct {
	model.Container
	since time.Time
}

// listRunning queries the running containers and their start times.
func (o *observer) listRunning(ctx context.Context, m *machine) ([]livingContainer, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	all, err := m.docker.ContainerList(ctx, container.ListOptions{Filters: filters.NewArgs(filters.Arg("label", labelAttempt))})
	if err != nil {
		return nil, err
	}
	var living []livingContainer
	for _, c := range all {
		got, err := m.docker.ContainerInspect(ctx, c.ID)
		if err != nil || !got.State.Running {
			continue // it has ended meanwhile
		}
		since, err := startedAt(got)
		if err != nil {
			return nil, err
		}
		living = append(living, livingContainer{containerOf(m, c.ID, strings.TrimPrefix(got.Name, "/"), c.Labels), since})
	}
	return living, nil
}

// startedAt returns when a container began to run. A daemon that was killed while it started
// the container does not know that; the creation time is then a lower bound.
func startedAt(c container.InspectResponse) (time.Time, error) {
	since, err := time.Parse(time.RFC3339Nano, c.State.StartedAt)
	if err == nil && since.IsZero() {
		since, err = time.Parse(time.RFC3339Nano, c.Created)
	}
	return since, err
}

// containerOf reads the labels. The attempt is "<allocation>/<task>/<number>".
func containerOf(m *machine, id, name string, labels map[string]string) model.Container {
	attempt := labels[labelAttempt]
	alloc, rest, _ := strings.Cut(attempt, "/")
	task, _, _ := strings.Cut(rest, "/")
	return model.Container{
		ID: id, Name: name, Engine: m.name(), Task: model.Task{Alloc: alloc, Name: task}, Attempt: attempt,
		GPUs: strings.Fields(labels[labelGPUs]),
	}
}
