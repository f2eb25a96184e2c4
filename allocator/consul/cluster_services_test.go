// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package consul_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/consul/consultest"
	"nomad-gpu-mem/allocator/storetest"
)

// settleTime is how long a cluster may take to find a leader again.
const settleTime = time.Minute

const contested = allocator.GPUID("GPU-contested")

// tenant is a task that wants all of one GPU.
type tenant struct {
	table *allocator.Table
	owner allocator.Owner
}

func newTenant(store allocator.Store, name string) tenant {
	return tenant{allocator.NewTable(store), allocator.Owner{
		Namespace: "default", Job: name, Group: name, Task: name, Alloc: name + "-alloc", Node: "node", NodeName: "host",
	}}
}

func (n tenant) claim(ctx context.Context) error {
	return n.table.Claim(ctx, n.owner, allocator.Attempt{ID: "attempt"}, []allocator.Booking{
		{GPU: contested, UnitMiB: 1024, Of: 4, TotalMiB: 4096, Units: allocator.NewUnitSet(0, 1, 2, 3)},
	})
}

func (n tenant) release(ctx context.Context) error {
	return n.table.Release(ctx, n.owner, "attempt", []allocator.GPUID{contested})
}

// holders names the jobs that hold the contested GPU.
func holders(ctx context.Context, store allocator.Store) (jobs []string, err error) {
	snapshot, err := allocator.NewTable(store).Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	for _, gpu := range snapshot.GPUs {
		for _, claim := range gpu.Claims() {
			jobs = append(jobs, claim.Job)
		}
	}
	return jobs, nil
}

// eventually repeats a step while the table is not reachable.
func eventually(t *testing.T, step func(context.Context) error) {
	t.Helper()
	must.NoError(t, consultest.Eventually(t.Context(), settleTime, step))
}

// Tasks start and end while the leader is killed, cut off and frozen, each
// once. What they hold is never in doubt.
func TestCluster_loses_its_leader(t *testing.T) {
	t.Parallel()
	cluster := consultest.StartThree(t)
	store := open(t, cluster.Servers[0], "", "")
	faults := map[string]func(server int) (heal func()){
		"killed": func(server int) func() {
			cluster.Servers[server].Kill()
			return func() { must.NoError(t, cluster.Servers[server].Restart()) }
		},
		"cut off": func(server int) func() {
			cluster.Isolate(t, server)
			return func() { cluster.Heal(t) }
		},
		"frozen": func(server int) func() {
			must.NoError(t, cluster.Servers[server].Freeze())
			return func() { must.NoError(t, cluster.Servers[server].Thaw()) }
		},
	}
	for name, fault := range faults {
		done := make(chan struct{})
		go func() {
			defer close(done)
			storetest.ManyTasks(t, store, 12)
		}()
		must.NoError(t, awaitChanges(t.Context(), store, 20))
		leader := cluster.Leader(t)
		heal := fault(leader)
		other := open(t, cluster.Servers[(leader+1)%3], "", "other/"+name)
		eventually(t, func(ctx context.Context) error {
			return other.Apply(ctx, []allocator.Write{{Key: "a", Value: []byte("the majority works")}})
		})
		heal()
		<-done
		for _, server := range cluster.Servers {
			server.Ready(t, "")
		}
	}
}

// A server that is cut off neither grants nor shows anything. What it was asked
// for meanwhile is decided by the others' table.
func TestCluster_minority_grants_nothing(t *testing.T) {
	t.Parallel()
	cluster := consultest.StartThree(t)
	leader := cluster.Leader(t)
	minority := open(t, cluster.Servers[leader], "", "")
	majority := open(t, cluster.Servers[(leader+1)%3], "", "")
	must.NoError(t, newTenant(majority, "old").claim(t.Context()))

	cluster.Isolate(t, leader)
	winner, loser := newTenant(majority, "winner"), newTenant(minority, "loser")
	eventually(t, newTenant(majority, "old").release)
	eventually(t, winner.claim)
	var all sync.WaitGroup
	asked := calls(minority)
	asked["claim"] = loser.claim
	for name, call := range asked {
		all.Go(func() {
			if err := call(t.Context()); !errors.Is(err, allocator.ErrUnavailable) {
				t.Errorf("%s: want %v, have %v", name, allocator.ErrUnavailable, err)
			}
		})
	}
	all.Wait()

	cluster.Heal(t)
	eventually(t, func(ctx context.Context) error {
		if err := loser.claim(ctx); !errors.Is(err, allocator.ErrHeld) {
			return fmt.Errorf("want %w, have %v", allocator.ErrHeld, err)
		}
		return nil
	})
	jobs, err := holders(t.Context(), minority)
	must.NoError(t, err)
	must.Eq(t, []string{"winner"}, jobs)
}

// A leader that was frozen wakes up and believes that it still leads. It must
// not answer from what it knew.
func TestCluster_deposed_leader_reads_nothing_stale(t *testing.T) {
	t.Parallel()
	cluster := consultest.StartThree(t)
	leader := cluster.Leader(t)
	before, after := open(t, cluster.Servers[leader], "", ""), open(t, cluster.Servers[(leader+1)%3], "", "")
	must.NoError(t, newTenant(before, "old").claim(t.Context()))

	must.NoError(t, cluster.Servers[leader].Freeze())
	eventually(t, newTenant(after, "old").release)
	eventually(t, newTenant(after, "new").claim)
	must.NoError(t, cluster.Servers[leader].Thaw())
	eventually(t, func(ctx context.Context) error { // as soon as it answers at all
		jobs, err := holders(ctx, before)
		if err == nil {
			must.Eq(t, []string{"new"}, jobs)
		}
		return err
	})
}

// An old snapshot restores old claims. The driver asserts running tasks'
// claims again; where the table has another holder of their units, this is shown.
func TestCluster_restored_from_an_old_snapshot(t *testing.T) {
	t.Parallel()
	cluster := consultest.StartThree(t)
	store := open(t, cluster.Servers[0], "", "")
	client := cluster.Servers[0].Client(t, "")
	gone, runs := newTenant(store, "gone"), newTenant(store, "runs")

	must.NoError(t, gone.claim(t.Context()))
	reader, _, err := client.Snapshot().Save(nil)
	must.NoError(t, err)
	old, err := io.ReadAll(reader)
	must.NoError(t, err)
	must.NoError(t, reader.Close())
	must.NoError(t, gone.release(t.Context()))
	must.NoError(t, runs.claim(t.Context()))

	_, version, err := store.Watch(t.Context(), 0)
	must.NoError(t, err)
	watched := make(chan error, 1)
	go func() {
		_, _, err := store.Watch(t.Context(), version)
		watched <- err
	}()
	must.NoError(t, client.Snapshot().Restore(nil, bytes.NewReader(old)))
	must.NoError(t, <-watched) // a watcher of the table is notified

	err = runs.claim(t.Context())
	must.ErrorIs(t, err, allocator.ErrHeld)
	must.ErrorContains(t, err, gone.owner.String())
	must.NoError(t, gone.release(t.Context())) // its driver has it in the journal, or an operator releases it
	must.NoError(t, runs.claim(t.Context()))
	jobs, err := holders(t.Context(), store)
	must.NoError(t, err)
	must.Eq(t, []string{"runs"}, jobs)
}
