// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/nomad/plugins/device"

	"nomad-gpu-mem/allocator"
)

// visibleDevices is the variable that selects the GPUs that NVIDIA's container runtime shows
// to a container. Nomad's Docker driver switches to that runtime when the variable is set.
const visibleDevices = "NVIDIA_VISIBLE_DEVICES"

// reserveWait bounds the wait for the first reading. After a restart of the plugin, Nomad may
// reserve a GPU that the plugin has not read yet.
const reserveWait = 15 * time.Second

// Reserve returns the environment of a task for which Nomad booked the units with these IDs:
// the GPU that it may see, and the booking for the task driver. It reserves nothing itself:
// Nomad has booked the units, and never reports when a task has ended. It also succeeds for a
// GPU that has become unhealthy meanwhile.
func (p *Plugin) Reserve(ids []string) (*device.ContainerReservation, error) {
	id, units, err := parseIDs(ids)
	if err != nil {
		return nil, fmt.Errorf("cannot reserve: %w", err)
	}
	g, err := p.await(id)
	if err != nil {
		return nil, fmt.Errorf("cannot reserve units %s of GPU %s: %w", units, id, err)
	}
	if last := units[len(units)-1]; last >= g.units {
		return nil, fmt.Errorf("cannot reserve units %s of GPU %s: it has %d units, so unit %d does not exist; memory_unit may have been changed while the job was placed",
			units, id, g.units, last)
	}
	booking := allocator.Booking{GPU: id, UnitMiB: g.unitMiB, Of: g.units, TotalMiB: g.Memory.TotalMiB, Units: units}
	key, value, err := booking.Env()
	if err != nil {
		return nil, fmt.Errorf("cannot reserve units %s of GPU %s: %w", units, id, err)
	}
	return &device.ContainerReservation{Envs: map[string]string{visibleDevices: string(id), key: value}}, nil
}

// parseIDs parses the IDs of one ask, which must be of one GPU.
func parseIDs(ids []string) (allocator.GPUID, allocator.UnitSet, error) {
	if len(ids) == 0 {
		return "", nil, errors.New("no device IDs")
	}
	var gpu allocator.GPUID
	var units []int
	for _, id := range ids {
		of, unit, err := allocator.ParseUnitID(id)
		if err != nil {
			return "", nil, err
		}
		if gpu != "" && gpu != of {
			return "", nil, fmt.Errorf("device IDs of GPU %s and of GPU %s, want one GPU", gpu, of)
		}
		gpu = of
		units = append(units, unit)
	}
	set := allocator.NewUnitSet(units...)
	if len(set) != len(ids) {
		return "", nil, fmt.Errorf("device IDs of GPU %s with a duplicate unit: %v", gpu, ids)
	}
	return gpu, set, nil
}

// await finds an offered GPU. If NVML has not answered yet, it waits.
func (p *Plugin) await(id allocator.GPUID) (gpu, error) {
	patience := time.NewTimer(reserveWait)
	defer patience.Stop()
	for {
		newest, changed := p.board.read()
		if g, ok := newest.find(id); ok {
			return g, nil
		}
		if newest.good {
			return gpu{}, errors.New("this node does not offer the GPU; it may have been replaced, or MIG reconfigured")
		}
		select {
		case <-changed:
		case <-patience.C:
			return gpu{}, fmt.Errorf("cannot read the GPUs within %s: %w", reserveWait, newest.reason())
		}
	}
}

func (i inventory) reason() error {
	if i.fault != nil {
		return i.fault
	}
	return errors.New("no reading has completed")
}
