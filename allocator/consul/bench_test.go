// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build bench

package consul_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/consul"
	"nomad-gpu-mem/allocator/consul/consultest"
)

// The benchmarks of the table on a real Consul. Each is measured beside bare
// requests to the same server in the same run, since only the ratio says
// something on another machine. They fail if a limit is exceeded.

const (
	maxUncontended = 2.2 // a claim or a release, in bare check-and-set requests
	maxContended   = 1.5 // many claims on one GPU from one process, in as many reads with check-and-set, in sequence
	maxColdRead    = 2.5 // the whole table, read and decoded, in bare lists of the same keys

	claimers = 64
)

// bench is a server, a table in it, and a client without the table.
type bench struct {
	*testing.T
	agent *consultest.Agent
	store allocator.Store
	table *allocator.Table
	kv    *api.KV
}

func newBench(t *testing.T) *bench {
	agent := consultest.Start(t)
	agent.Ready(t, "")
	store, err := consul.New(consul.Config{Address: agent.Address})
	must.NoError(t, err)
	t.Cleanup(func() { must.NoError(t, store.Close()) })
	return &bench{T: t, agent: agent, store: store, table: allocator.NewTable(store), kv: agent.Client(t, "").KV()}
}

// bareCAS is one check-and-set without a read.
func (b *bench) bareCAS(key string, value []byte, index uint64) time.Duration {
	begun := time.Now()
	ok, _, err := b.kv.CAS(&api.KVPair{Key: key, Value: value, ModifyIndex: index}, nil)
	must.NoError(b, err)
	must.True(b, ok)
	return time.Since(begun)
}

func (b *bench) read(key string) *api.KVPair {
	pair, _, err := b.kv.Get(key, &api.QueryOptions{RequireConsistent: true})
	must.NoError(b, err)
	return pair
}

func (b *bench) timed(call func() error) time.Duration {
	begun := time.Now()
	must.NoError(b, call())
	return time.Since(begun)
}

func quantile(times []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))].Round(time.Microsecond)
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

func ownerNumber(n int) allocator.Owner {
	return allocator.Owner{
		Namespace: "default", Job: fmt.Sprintf("job-%d", n), Group: "group", Task: "main",
		Alloc: fmt.Sprintf("%08x-5f0e-4e6b-9a3c-2d1b0c9f8e7d", n), Node: "9c7d3a10-66b2-4b2b-8f7a-0d1e2f3a4b5c", NodeName: "host",
	}
}

func oneUnit(gpu allocator.GPUID, unit int) []allocator.Booking {
	return []allocator.Booking{{GPU: gpu, UnitMiB: 1024, Of: claimers, Units: allocator.NewUnitSet(unit)}}
}

func TestBench_uncontended(t *testing.T) {
	b := newBench(t)
	const rounds = 400
	gpu := allocator.GPUID("GPU-bench")
	var bare, claims, releases []time.Duration
	for n := range rounds {
		owner := ownerNumber(n)
		claims = append(claims, b.timed(func() error {
			return b.table.Claim(t.Context(), owner, allocator.Attempt{ID: "attempt"}, oneUnit(gpu, 0))
		}))
		index := uint64(0)
		if pair := b.read("bare"); pair != nil {
			index = pair.ModifyIndex
		}
		bare = append(bare, b.bareCAS("bare", make([]byte, 500), index))
		releases = append(releases, b.timed(func() error { return b.table.Release(t.Context(), owner, "attempt", []allocator.GPUID{gpu}) }))
	}
	cas := quantile(bare, .5)
	t.Logf("bare CAS p50 %v; claim p50 %v p99 %v: %.2f; release p50 %v p99 %v: %.2f (at most %.1f)", cas,
		quantile(claims, .5), quantile(claims, .99), ratio(quantile(claims, .5), cas),
		quantile(releases, .5), quantile(releases, .99), ratio(quantile(releases, .5), cas), maxUncontended)
	must.LessEq(t, maxUncontended, ratio(quantile(claims, .5), cas))
	must.LessEq(t, maxUncontended, ratio(quantile(releases, .5), cas))
}

// As many claimers as units want one each, all at once: through one table, as
// the tasks of a node do, where one driver claims all its GPUs; and
// through a table each, which only planners do. Those meet in the store alone, and
// each conflict costs a request more: that is shown and has no limit.
func TestBench_contended(t *testing.T) {
	b := newBench(t)
	for name, tables := range map[string]int{"one process": 1, "a process each": claimers} {
		var all []*allocator.Table
		for range tables {
			store, err := consul.New(consul.Config{Address: b.agent.Address})
			must.NoError(t, err)
			t.Cleanup(func() { must.NoError(t, store.Close()) })
			all = append(all, allocator.NewTable(store))
		}
		const rounds = 5
		var bare, total, single []time.Duration
		for round := range rounds {
			gpu := allocator.GPUID(fmt.Sprintf("GPU-%d-%d", tables, round))
			bare = append(bare, b.timed(func() error { return b.pairs("bare/" + string(gpu)) }))
			var mu sync.Mutex
			total = append(total, b.timed(func() error {
				var running sync.WaitGroup
				for n := range claimers {
					running.Go(func() {
						took := b.timed(func() error {
							return all[n%tables].Claim(t.Context(), ownerNumber(n), allocator.Attempt{ID: "attempt"}, oneUnit(gpu, n))
						})
						mu.Lock()
						defer mu.Unlock()
						single = append(single, took)
					})
				}
				running.Wait()
				return nil
			}))
			b.allHold(gpu)
		}
		t.Logf("%s: %d claims on one GPU %v, as many bare pairs in sequence %v: %.2f (at most %.1f); one claim p50 %v p99 %v", name,
			claimers, quantile(total, .5), quantile(bare, .5), ratio(quantile(total, .5), quantile(bare, .5)), maxContended,
			quantile(single, .5), quantile(single, .99))
		if tables == 1 {
			must.LessEq(t, maxContended, ratio(quantile(total, .5), quantile(bare, .5)))
		}
	}
}

// pairs does as many reads with check-and-set as there are claimers, of values
// that grow like a ledger.
func (b *bench) pairs(key string) error {
	for n := range claimers {
		index := uint64(0)
		if pair := b.read(key); pair != nil {
			index = pair.ModifyIndex
		}
		b.bareCAS(key, make([]byte, 400*(n+1)), index)
	}
	return nil
}

func (b *bench) allHold(gpu allocator.GPUID) {
	found, err := b.table.Inspect(b.Context(), gpu)
	must.NoError(b, err)
	must.Len(b, claimers, found.Claims())
}

// The whole table of a large cluster.
func TestBench_large(t *testing.T) {
	const nodes, gpusPerNode, claimsPerGPU = 1250, 8, 4
	b := newBench(t)
	b.fill(nodes, gpusPerNode, claimsPerGPU)
	var cold, list []time.Duration
	var snapshot *allocator.Snapshot
	for range 5 {
		list = append(list, b.timed(func() error { _, _, err := b.kv.List("gpu-mem/", nil); return err }))
		table := allocator.NewTable(b.store)
		cold = append(cold, b.timed(func() (err error) { snapshot, err = table.Snapshot(t.Context()); return err }))
		must.Len(t, nodes*gpusPerNode, snapshot.GPUs)
		b.table = table
	}
	var next []time.Duration
	for n := range 5 {
		must.NoError(t, b.table.Claim(t.Context(), ownerNumber(n), allocator.Attempt{ID: "attempt"}, oneUnit(snapshot.GPUs[n].ID, 60+n%4)))
		next = append(next, b.timed(func() (err error) { snapshot, err = b.table.Watch(t.Context(), snapshot.Version); return err }))
	}
	t.Logf("%d GPUs, %d claims: a bare list takes %v; read cold in %v: %.2f (at most %.1f); after one change in %v: %.2f",
		nodes*gpusPerNode, nodes*gpusPerNode*claimsPerGPU, quantile(list, .5),
		quantile(cold, .5), ratio(quantile(cold, .5), quantile(list, .5)), maxColdRead,
		quantile(next, .5), ratio(quantile(next, .5), quantile(list, .5)))
	must.LessEq(t, maxColdRead, ratio(quantile(cold, .5), quantile(list, .5)))
}

// fill writes the table in large transactions.
func (b *bench) fill(nodes, gpusPerNode, claimsPerGPU int) {
	var writes []allocator.Write
	flush := func() {
		must.NoError(b, b.store.Apply(context.Background(), writes))
		writes = nil
	}
	for node := range nodes {
		name := allocator.NodeName(fmt.Sprintf("gpu-node-%d", node))
		state, err := json.Marshal(allocator.NodeState{Name: name, Version: "0.1.0", LastSeen: time.Now()})
		must.NoError(b, err)
		writes = append(writes, allocator.Write{Key: allocator.NodeKey(name), Value: state})
		for index := range gpusPerNode {
			number := node*gpusPerNode + index
			gpu := allocator.GPUID(fmt.Sprintf("GPU-%08x-8c1b-4e0a-9d53-1c2f0e6b7a80", number))
			state, err := json.Marshal(allocator.GPUState{
				Node: name, Model: "NVIDIA H100 80GB HBM3", Index: index, MemoryMiB: 81559, UnitMiB: 1024, Units: 79, UpdatedAt: time.Now(),
			})
			must.NoError(b, err)
			ledger, err := allocator.DecodeLedger(nil)
			must.NoError(b, err)
			for claim := range claimsPerGPU {
				booking := oneUnit(gpu, claim)[0]
				_, err := ledger.Claim(ownerNumber(number*claimsPerGPU+claim), allocator.Attempt{ID: "attempt"}, booking, time.Now())
				must.NoError(b, err)
			}
			value, err := ledger.Encode()
			must.NoError(b, err)
			writes = append(writes, allocator.Write{Key: allocator.StateKey(gpu), Value: state},
				allocator.Write{Key: allocator.ClaimsKey(gpu), Value: value})
		}
		if len(writes) >= 40 {
			flush()
		}
	}
	flush()
}
