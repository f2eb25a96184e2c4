// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package soak

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/e2e/soak/model"
)

// observer collects the observations for the model.
type observer struct {
	*cluster
	report func(model.Violation)

	mu       sync.Mutex
	timeline *model.Timeline
	checker  *model.Checker
	looked   map[string]bool // containers with checked devices
	looks    int
	blind    int
	held     int // claims at the last look
}

// bounds are those of the documentation. Units are claimed before the container is created,
// so a running container is without a claim for a moment at most. After a ledger was
// unreadable, running tasks repeat their claims within two minutes. An orphan claim may last
// for ten minutes before it is recognised.
var bounds = model.Bounds{Unclaimed: 10 * time.Second, Repaired: 2 * time.Minute, Orphan: 12 * time.Minute}

func newObserver(c *cluster, report func(model.Violation)) *observer {
	timeline := model.NewTimeline()
	return &observer{
		cluster: c, report: report, timeline: timeline, checker: model.NewChecker(bounds, timeline),
		looked: map[string]bool{},
	}
}

// observe runs until ctx ends.
func (o *observer) observe(ctx context.Context) {
	var watching sync.WaitGroup
	for _, m := range o.machines {
		watching.Go(func() { o.follow(ctx, m) })
	}
	for ctx.Err() == nil {
		o.learnBookings(ctx)
		o.look(ctx)
		wait(ctx, 500*time.Millisecond)
	}
	watching.Wait()
}

func (o *observer) tell(found []model.Violation) {
	for _, v := range found {
		o.report(v)
	}
}

func (o *observer) started(c model.Container, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tell(o.timeline.Started(c, at))
}

func (o *observer) ended(id string, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.timeline.Ended(id, at)
}

func (o *observer) listed(m *machine, running []livingContainer, missedSince time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var ids []string
	for _, c := range running {
		ids = append(ids, c.ID)
	}
	o.timeline.Listed(m.name(), ids, missedSince)
	for _, c := range running {
		o.tell(o.timeline.Started(c.Container, c.since))
	}
}

// running returns the running containers with a slice.
func (o *observer) running() []model.Run {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.DeleteFunc(o.timeline.Running(), func(r model.Run) bool { return len(r.GPUs) == 0 })
}

// repaired records that a GPU's ledger can be read again.
func (o *observer) repaired(gpu string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.checker.Repaired(gpu, time.Now())
}

// learnBookings queries Nomad's bookings for tasks that have a container.
func (o *observer) learnBookings(ctx context.Context) {
	o.mu.Lock()
	tasks := o.timeline.Unbooked()
	o.mu.Unlock()
	for _, task := range tasks {
		units, err := o.bookedFor(task)
		if errors.Is(err, errNotBooked) {
			continue // it will never be known
		}
		if err != nil || ctx.Err() != nil {
			return // Nomad is down: try later
		}
		o.mu.Lock()
		o.tell(o.timeline.Book(task, units))
		o.mu.Unlock()
	}
}

// errNotBooked is returned when Nomad does not know the task.
var errNotBooked = errors.New("nothing is booked")

func (o *observer) bookedFor(task model.Task) (units []model.Unit, err error) {
	alloc, _, err := o.nomad.Allocations().Info(task.Alloc, nil)
	if answer, ok := errors.AsType[api.UnexpectedResponseError](err); ok && answer.StatusCode() == http.StatusNotFound {
		return nil, errors.Join(errNotBooked, err)
	}
	if err != nil {
		return nil, err
	}
	if alloc.AllocatedResources == nil || alloc.AllocatedResources.Tasks[task.Name] == nil {
		return nil, fmt.Errorf("allocation %s, task %s: %w", task.Alloc, task.Name, errNotBooked)
	}
	for _, device := range alloc.AllocatedResources.Tasks[task.Name].Devices {
		for _, id := range device.DeviceIDs {
			gpu, unit, err := allocator.ParseUnitID(id)
			if err != nil {
				return nil, err
			}
			units = append(units, model.Unit{GPU: string(gpu), Index: unit})
		}
	}
	return units, nil
}

// look compares containers and table once.
func (o *observer) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	before := o.running()
	snapshot, err := o.table.Snapshot(ctx)
	after := o.running()

	o.mu.Lock()
	defer o.mu.Unlock()
	if ctx.Err() == nil {
		o.looks++
	}
	if err != nil {
		o.blind++
		return
	}
	claims, unreadable := claimsOf(snapshot)
	o.held = len(claims)
	o.tell(o.checker.See(model.Look{At: time.Now(), Before: before, After: after, Claims: claims, Unreadable: unreadable}))
	for _, run := range after {
		o.tell(o.seen(ctx, run))
	}
}

// seen checks once, from the host, which GPUs a container has.
func (o *observer) seen(ctx context.Context, run model.Run) []model.Violation {
	_, known := o.timeline.Booked(run.Task)
	if o.looked[run.ID] || !known {
		return nil
	}
	got, err := o.machineNamed(run.Engine).docker.ContainerInspect(ctx, run.ID)
	if err != nil || !got.State.Running {
		return nil
	}
	nodes, err := filepath.Glob(fmt.Sprintf("/proc/%d/root/dev/nvidia[0-9]*", got.State.Pid))
	if err != nil {
		return nil
	}
	o.looked[run.ID] = true
	var gpus []string
	for _, node := range nodes {
		index, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(node), "nvidia"))
		if err != nil || index >= len(o.gpus.GPUs) {
			continue
		}
		gpus = append(gpus, o.gpus.GPUs[index].UUID)
	}
	return o.timeline.Sees(run.Container, gpus, time.Now())
}

// claimsOf returns a snapshot's claims, and the GPUs with unreadable claims.
func claimsOf(s *allocator.Snapshot) (claims []model.Claim, unreadable []string) {
	for _, gpu := range s.GPUs {
		if gpu.Ledger == nil {
			unreadable = append(unreadable, string(gpu.ID))
		}
		for _, claim := range gpu.Claims() {
			claims = append(claims, model.Claim{
				GPU: string(gpu.ID), Units: claim.Units, Task: model.Task{Alloc: claim.Alloc, Name: claim.Task},
				Attempt: claim.Attempt, Container: claim.Container, State: string(claim.State),
			})
		}
	}
	return claims, unreadable
}
