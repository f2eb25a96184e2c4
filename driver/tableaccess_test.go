// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/tableconfig"
)

// readOnly is a store whose token may only read, while denied is set.
type readOnly struct {
	allocator.Store
	denied atomic.Bool
}

func (r *readOnly) Apply(ctx context.Context, writes []allocator.Write) error {
	if r.denied.Load() {
		return fmt.Errorf("the token lacks write: %w", allocator.ErrWriteDenied)
	}
	return r.Store.Apply(ctx, writes)
}

// A token that may only read is noticed before the first task: Nomad would place
// task after task on a node where none can start.
func TestReadOnlyTokenMakesTheDriverUnhealthy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	store := &readOnly{Store: w.store}
	store.denied.Store(true)
	p := w.newPlugin()
	p.openTable = func(tableconfig.Config) (Table, error) { return keptTable{allocator.NewTable(store)}, nil }
	must.NoError(t, p.SetConfig(w.agentConfig()))
	t.Cleanup(p.Shutdown)
	prints, err := p.Fingerprint(t.Context())
	must.NoError(t, err)

	first := <-prints
	must.Eq(t, drivers.HealthStateUnhealthy, first.Health)
	must.StrContains(t, first.HealthDescription, "tasks cannot claim GPU memory: the token lacks write")
	must.MapNotEmpty(t, first.Attributes)

	store.denied.Store(false)
	second := <-prints
	must.Eq(t, drivers.HealthStateHealthy, second.Health)
	must.Eq(t, drivers.DriverHealthy, second.HealthDescription)

	store.denied.Store(true) // a proof does not count for ever
	must.Eq(t, drivers.HealthStateUnhealthy, (<-prints).Health)

	// Where no GPU task can run anyway the others still can.
	w.engine.change(func() { w.engine.runtimes = []string{"runc"} })
	last := <-prints
	must.Eq(t, drivers.HealthStateHealthy, last.Health)
	must.StrContains(t, last.HealthDescription, "the token lacks write")
}

// A fault that fails each start makes the driver unhealthy, whatever it is; one that
// starts wait for does not.
func TestFaultsOfTheTable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault  error
		health drivers.HealthState
	}{
		"a namespace of another edition": {errors.New("Namespaces are a Consul Enterprise feature"), drivers.HealthStateUnhealthy},
		"the token is unknown":           {fmt.Errorf("ACL not found: %w", allocator.ErrDenied), drivers.HealthStateUnhealthy},
		"the file is damaged":            {fmt.Errorf("file x: %w", allocator.ErrUnreadable), drivers.HealthStateUnhealthy},
		"no answer":                      {fmt.Errorf("waiting: %w", context.DeadlineExceeded), drivers.HealthStateHealthy},
		"too many connections":           {fmt.Errorf("429: %w", allocator.ErrUnavailable), drivers.HealthStateHealthy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.store.Fail(c.fault)
			prints, err := w.boot().Fingerprint(t.Context())
			must.NoError(t, err)
			first := <-prints
			must.Eq(t, c.health, first.Health)
			must.StrContains(t, first.HealthDescription, c.fault.Error())
			w.store.Fail(nil)
			must.Eq(t, drivers.HealthStateHealthy, (<-prints).Health)
		})
	}
}

// silentTable answers once, and then no more.
type silentTable struct {
	Table
	asked atomic.Int64
}

func (s *silentTable) Claim(context.Context, allocator.Owner, allocator.Attempt, []allocator.Booking) error {
	if s.asked.Add(1) == 1 {
		return fmt.Errorf("Consul at 192.0.2.1:8500 does not answer: %w", allocator.ErrUnavailable)
	}
	return context.DeadlineExceeded
}

// A start whose time is up says what it waited for.
func TestStartThatWaitedInVainNamesTheTable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config = `claim_timeout = "50ms"`
	p := w.newPlugin()
	p.openTable = func(tableconfig.Config) (Table, error) { return &silentTable{Table: keptTable{w.table}}, nil }
	must.NoError(t, p.SetConfig(w.agentConfig()))
	t.Cleanup(p.Shutdown)
	_, _, err := p.StartTask(w.task(``, slice(gpuA, 1)))
	must.ErrorContains(t, err, "Consul at 192.0.2.1:8500 does not answer")
	must.ErrorContains(t, err, "claim_timeout")
}
