// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/hashicorp/nomad/plugins/shared/structs"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/attempt"
	"nomad-gpu-mem/driver/docker"
)

// handleVersion is the version of TaskState that this plugin writes and reads.
const handleVersion = 1

// TaskState is what Nomad keeps for the plugin over restarts. Field names are part
// of the format.
type TaskState struct {
	ContainerID   string
	Engine        string // ID of the Docker engine that has it; empty: not known
	Image         string // ID
	Attempt       string
	Bookings      []Slice
	Begun         time.Time // when the attempt began; zero in the handles of older versions
	DriverNetwork *drivers.DriverNetwork
	StartedAt     time.Time
	TTY           bool
	// ReattachConfig is of the process by which Nomad's own driver copies the output; nil
	// in what this plugin writes.
	ReattachConfig *structs.ReattachConfig
}

// Slice is a booking as TaskState keeps it.
type Slice struct {
	GPU      string
	UnitMiB  uint64
	Of       int
	TotalMiB uint64
	Units    string // as in "0-3,7"
}

// handle is one task that has a container.
type handle struct {
	task      *drivers.TaskConfig
	bookings  []allocator.Booking
	container string      // ID
	engine    string      // ID of the Docker engine that has it
	begun     time.Time   // when its attempt began
	seen      atomic.Bool // this process has seen the container run
	image     string      // ID
	network   *drivers.DriverNetwork
	startedAt time.Time
	tty       bool
	pool      string // shared CPUs that the container was given; empty: not known
	builtin   bool   // Nomad's own driver started it
	logger    int    // pid of that driver's process that copies the output; 0: none

	ctx    context.Context // ends when the task is destroyed or the plugin stops
	cancel context.CancelFunc
	logged chan struct{} // closed when no more output will be copied

	exited chan struct{} // closed once exit is set
	exit   exit

	mentions mentions // Nomad's calls about the task

	claimMu sync.Mutex // held while the claim is asserted
	over    bool       // under claimMu: the claim may not be asserted any more
	trouble string     // under claimMu: why it could not be asserted the last time
}

func newHandle(ctx context.Context, task *drivers.TaskConfig, bookings []allocator.Booking, engine string, found docker.Container) *handle {
	h := &handle{
		task:      task,
		bookings:  bookings,
		container: found.ID,
		engine:    engine,
		image:     found.Image,
		startedAt: found.StartedAt,
		begun:     found.StartedAt,
		tty:       found.TTY,
		logged:    make(chan struct{}),
		exited:    make(chan struct{}),
	}
	h.ctx, h.cancel = context.WithCancel(ctx)
	return h
}

// exit is how a task ended.
type exit struct {
	result     *drivers.ExitResult
	finishedAt time.Time
}

func (h *handle) attempt() attempt.Record {
	a := attempt.NewRecord(h.task, h.bookings, h.begun, h.engine)
	if h.builtin {
		a.Container = h.container
	}
	return a
}

// running reports whether the container is not known to have ended.
func (h *handle) running() bool {
	select {
	case <-h.exited:
		return false
	default:
		return true
	}
}

// exitResult tells Nomad how a container ended. Its signal is left out: Docker tells only
// an exit code, and 128 and more may be a signal or what the program returned. Nor is
// 137 a lack of memory: that counts only if the kernel said so.
func exitResult(ended docker.Exit) *drivers.ExitResult {
	result := &drivers.ExitResult{ExitCode: ended.Code, OOMKilled: ended.OOMKilled}
	switch {
	case ended.OOMKilled:
		result.Err = fmt.Errorf("OOM Killed")
	case ended.Error != "":
		result.Err = errors.New(ended.Error)
	case ended.Code != 0:
		result.Err = fmt.Errorf("Docker container exited with non-zero exit code: %d", ended.Code)
	}
	return result
}

// close ends everything that runs for the task in this process, and ensures that
// its claim is not written again.
func (h *handle) close() {
	h.cancel()
	h.claimMu.Lock()
	defer h.claimMu.Unlock()
	h.over = true
}

// nomadHandle is what StartTask returns and RecoverTask gets back.
func (h *handle) nomadHandle() (*drivers.TaskHandle, error) {
	state := TaskState{
		ContainerID:   h.container,
		Engine:        h.engine,
		Image:         h.image,
		Attempt:       h.task.ID,
		Begun:         h.begun,
		DriverNetwork: h.network,
		StartedAt:     h.startedAt,
		TTY:           h.tty,
	}
	for _, b := range h.bookings {
		state.Bookings = append(state.Bookings, Slice{string(b.GPU), b.UnitMiB, b.Of, b.TotalMiB, b.Units.String()})
	}
	out := drivers.NewTaskHandle(handleVersion)
	out.Config = h.task
	out.State = drivers.TaskStateRunning
	if err := out.SetDriverState(&state); err != nil {
		return nil, fmt.Errorf("cannot encode the task's state for Nomad: %w", err)
	}
	return out, nil
}

// begun is when the attempt began. The handle of an older version tells only when its
// container did, which is later, but before the next attempt.
func (s TaskState) begun() time.Time {
	if s.Begun.IsZero() {
		return s.StartedAt
	}
	return s.Begun
}

// bookings turns the kept slices back into bookings.
func (s TaskState) bookings(task *drivers.TaskConfig) ([]allocator.Booking, error) {
	if s.isBuiltin() {
		return builtinBookings(task)
	}
	var all []allocator.Booking
	for _, slice := range s.Bookings {
		units, err := allocator.ParseUnitSet(slice.Units)
		if err != nil {
			return nil, fmt.Errorf("units of GPU %s: %w", slice.GPU, err)
		}
		all = append(all, allocator.Booking{
			GPU: allocator.GPUID(slice.GPU), UnitMiB: slice.UnitMiB, Of: slice.Of, TotalMiB: slice.TotalMiB, Units: units,
		})
	}
	return all, nil
}
