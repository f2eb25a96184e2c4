// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"context"
	"sync"
	"testing"

	"github.com/hashicorp/nomad/plugins/device"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/nvml"
)

// canned is a reader that returns the snapshot that the test has set.
type canned struct {
	mu       sync.Mutex
	snapshot *nvml.Snapshot
	err      error
	isOpen   bool  // there is a session
	stuck    error // why the session cannot be closed
}

func (c *canned) set(err error, gpus ...nvml.GPU) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.snapshot, c.err = &nvml.Snapshot{DriverVersion: "550", GPUs: gpus}, err
}

func (c *canned) Snapshot(context.Context) (*nvml.Snapshot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isOpen = true
	if c.err != nil {
		return nil, c.err
	}
	return c.snapshot, nil
}

func (c *canned) Release() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stuck == nil {
		c.isOpen = false
	}
	return c.stuck
}

func (c *canned) hasSession() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isOpen
}

func (c *canned) jam(stuck error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stuck = stuck
}

func (c *canned) Close() { _ = c.Release() }

func withCanned(t *testing.T, gpus ...nvml.GPU) (*harness, *canned) {
	c := &canned{}
	c.set(nil, gpus...)
	return newHarness(t, func(string) Reader { return c }, quick()), c
}

func TestReserveReturnsTheBooking(t *testing.T) {
	t.Parallel()
	h, _ := withCanned(t, gpuOf("MIG-GPU-1/3/0", 8192, 0))
	h.fingerprint().until(groups(1))
	r, err := h.nomad.Reserve([]string{"MIG-GPU-1/3/0::0005", "MIG-GPU-1/3/0::0001"})
	must.NoError(t, err)
	must.Eq(t, "MIG-GPU-1/3/0", r.Envs["NVIDIA_VISIBLE_DEVICES"])
	bookings, err := allocator.ParseBookings(r.Envs)
	must.NoError(t, err)
	must.Eq(t, []allocator.Booking{{
		GPU: "MIG-GPU-1/3/0", UnitMiB: 1024, Of: 8, TotalMiB: 8192, Units: allocator.UnitSet{1, 5},
	}}, bookings)
	must.MapLen(t, 2, r.Envs)
}

func TestReserveRefuses(t *testing.T) {
	t.Parallel()
	h, _ := withCanned(t, gpuOf("GPU-1", 8192, 0), gpuOf("GPU-2", 8192, 0))
	h.fingerprint().until(groups(2))
	for want, ids := range map[string][]string{
		"no device IDs":                            {},
		`device ID "GPU-1"`:                        {"GPU-1"},
		"of GPU GPU-1 and of GPU GPU-2":            {"GPU-1::0001", "GPU-2::0001"},
		"with a duplicate unit":                    {"GPU-1::0001", "GPU-1::0001"},
		"units 3 of GPU GPU-9: this node does not": {"GPU-9::0003"},
		"it has 8 units, so unit 8 does not":       {"GPU-1::0007", "GPU-1::0008"},
	} {
		_, err := h.nomad.Reserve(ids)
		must.ErrorContains(t, err, want)
	}
}

func TestReserveWaitsForTheFirstReading(t *testing.T) {
	t.Parallel()
	h, reader := withCanned(t)
	reader.set(errLost)
	type answer struct {
		r   *device.ContainerReservation
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		r, err := h.nomad.Reserve([]string{"GPU-1::0000"})
		answers <- answer{r, err}
	}()
	h.fingerprint()
	h.reads(3)
	reader.set(nil, gpuOf("GPU-1", 8192, 0))
	got := <-answers
	must.NoError(t, got.err)
	must.Eq(t, "GPU-1", got.r.Envs["NVIDIA_VISIBLE_DEVICES"])
}
