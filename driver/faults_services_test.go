// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package driver

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/consul"
	"nomad-gpu-mem/allocator/consul/consultest"
	"nomad-gpu-mem/driver/attempt"
)

// These tests put the driver over a table in a real Consul and break Consul, the
// plugin or the node. The engine is the small model that the unit tests use.

// consulWorld is a world whose table is in a Consul of its own.
func consulWorld(t *testing.T) (*world, *consultest.Agent) {
	t.Helper()
	agent := consultest.Start(t)
	agent.Ready(t, "")
	store, err := consul.New(consul.Config{Address: agent.Address})
	must.NoError(t, err)
	w := newWorld(t)
	w.table = allocator.NewTable(store)
	t.Cleanup(func() { must.NoError(t, store.Close()) })
	return w, agent
}

func restart(t *testing.T, agent *consultest.Agent) {
	t.Helper()
	must.NoError(t, agent.Restart())
	agent.Ready(t, "")
}

func (w *world) started(d *driver, bookings ...allocator.Booking) (*drivers.TaskConfig, *drivers.TaskHandle) {
	w.t.Helper()
	task := w.task(``, bookings...)
	handle, _, err := d.StartTask(task)
	must.NoError(w.t, err)
	return task, handle
}

func TestFaultConsulAwayAtStart(t *testing.T) {
	t.Parallel()
	w, agent := consulWorld(t)
	w.config = `claim_timeout = "200ms"`
	d := w.boot()
	agent.Kill()
	_, _, err := d.StartTask(w.task(``, slice(gpuA, 1)))
	must.ErrorContains(t, err, agent.Address)
	must.True(t, structs.IsRecoverable(err))
	must.Zero(t, w.engine.created)
	eventually(t, func() bool { return d.reported("Waiting for the allocation table") })

	restart(t, agent)
	task, _ := w.started(d, slice(gpuA, 1))
	must.NoError(t, d.DestroyTask(task.ID, true))
	w.nothingLeft()
}

func TestFaultConsulAwayAtStop(t *testing.T) {
	t.Parallel()
	w, agent := consulWorld(t)
	d := w.boot()
	task, _ := w.started(d, slice(gpuA, 1), slice(gpuB, 2))
	agent.Kill()
	results, err := d.WaitTask(t.Context(), task.ID)
	must.NoError(t, err)
	must.NoError(t, d.StopTask(task.ID, time.Second, ""))
	<-results // Nomad destroys what it has seen to end
	must.ErrorContains(t, d.DestroyTask(task.ID, false), "is not released yet")
	must.Zero(t, w.engine.count())
	d.kill()
	w.boot() // the next process knows what is still to be done
	restart(t, agent)
	w.nothingLeft()
}

func TestFaultConsulWiped(t *testing.T) {
	t.Parallel()
	w, agent := consulWorld(t)
	d := w.boot()
	task, _ := w.started(d, slice(gpuA, 3))
	before := w.claims()
	_, err := agent.Client(t, "").KV().DeleteTree("gpu-mem/", nil)
	must.NoError(t, err)
	eventually(t, func() bool { now := w.claims(); return len(now) == 1 && now[0] == before[0] })
	must.NoError(t, d.DestroyTask(task.ID, true))
	w.nothingLeft()
}

// The old snapshot gives the running task's units to one that is gone.
func TestFaultConsulRestoredFromAnOldSnapshot(t *testing.T) {
	t.Parallel()
	w, agent := consulWorld(t)
	client := agent.Client(t, "")
	gone := allocator.Owner{Job: "gone", Task: "t", Alloc: "gone-alloc"}
	must.NoError(t, w.table.Claim(t.Context(), gone, allocator.Attempt{ID: "1"}, []allocator.Booking{slice(gpuA, 3)}))
	must.NoError(t, w.table.Running(t.Context(), gone, "1", "its container", []allocator.GPUID{gpuA}))
	reader, _, err := client.Snapshot().Save(nil)
	must.NoError(t, err)
	old, err := io.ReadAll(reader)
	must.NoError(t, err)
	must.NoError(t, w.table.Release(t.Context(), gone, "1", []allocator.GPUID{gpuA}))

	d := w.boot()
	task, _ := w.started(d, slice(gpuA, 3))
	must.NoError(t, client.Snapshot().Restore(nil, bytes.NewReader(old)))
	d.soleForLong(t)
	eventually(t, func() bool {
		now := w.claims()
		return len(now) == 1 && now[0] == string(gpuA)+": "+allocID+" 3 running"
	})
	must.SliceLen(t, 1, w.engine.running())
	must.NoError(t, d.DestroyTask(task.ID, true))
	w.nothingLeft()
}

func TestFaultPluginKilled(t *testing.T) {
	t.Parallel()
	w, _ := consulWorld(t)
	d := w.boot()
	task, handle := w.started(d, slice(gpuA, 3))
	before := w.claims()
	for range 3 {
		d.kill()
		d = w.boot()
		must.NoError(t, d.RecoverTask(handle))
	}
	must.Eq(t, before, w.claims())
	must.Eq(t, 1, w.engine.created)
	must.NoError(t, d.DestroyTask(task.ID, true))
	w.nothingLeft()
}

func TestFaultDaemonAndConsulAwayTogether(t *testing.T) {
	t.Parallel()
	w, agent := consulWorld(t)
	d := w.boot()
	task, handle := w.started(d, slice(gpuA, 3))
	before := w.claims()
	d.kill()
	w.engine.setAway(true)
	agent.Kill()
	d = w.boot()
	must.NoError(t, d.RecoverTask(handle))
	restart(t, agent)
	w.engine.setAway(false)
	eventually(t, func() bool { now := w.claims(); return len(now) == 1 && now[0] == before[0] })
	must.Eq(t, 1, w.engine.created)
	must.NoError(t, d.DestroyTask(task.ID, true))
	w.nothingLeft()
}

// The node comes back without its containers, and Nomad asks for none of them.
func TestFaultNodeReboots(t *testing.T) {
	t.Parallel()
	w, _ := consulWorld(t)
	d := w.boot()
	task, _ := w.started(d, slice(gpuA, 3))
	d.kill()
	for _, container := range w.engine.running() {
		must.NoError(t, w.engine.Remove(t.Context(), container.ID))
	}
	_, found, err := attempt.OpenJournal(w.stateDir).Read(task.ID)
	must.NoError(t, err)
	must.True(t, found)
	must.SliceLen(t, 1, w.claims())
	w.boot().soleForLong(t)
	w.nothingLeft()
}

func TestFaultValueEditedByHand(t *testing.T) {
	t.Parallel()
	w, agent := consulWorld(t)
	key := "gpu-mem/" + allocator.ClaimsKey(gpuA)
	_, err := agent.Client(t, "").KV().Put(&api.KVPair{Key: key, Value: []byte("4 GiB")}, nil)
	must.NoError(t, err)
	d := w.boot()
	_, _, err = d.StartTask(w.task(``, slice(gpuA, 1)))
	must.ErrorContains(t, err, allocator.ClaimsKey(gpuA))
	must.ErrorContains(t, err, allocator.ErrUnreadable.Error())
	must.False(t, structs.IsRecoverable(err))
	task, _ := w.started(d, slice(gpuB, 1))
	must.NoError(t, d.DestroyTask(task.ID, true))
}

// The same histories as in memory, over a table in a real Consul.
func TestFaultHistoriesOnConsul(t *testing.T) {
	t.Parallel()
	histories, length := 3, 300
	if testing.Short() {
		histories, length = 1, 100
	}
	seed := rand.Uint64()
	for n := range histories {
		t.Run(fmt.Sprint("seed ", seed+uint64(n)), func(t *testing.T) {
			t.Parallel()
			w, _ := consulWorld(t)
			newHistory(t, w, seed+uint64(n)).run(length)
		})
	}
}
