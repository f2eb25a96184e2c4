// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

// Units of a GPU that accepts no new task cannot be claimed, and the error says why.
func TestClaim_of_a_GPU_that_takes_no_task(t *testing.T) {
	t.Parallel()
	state := allocator.GPUState{Node: "gpu-node-1", MemoryMiB: 23028, UnitMiB: 1024, Units: 21}
	for want, change := range map[string]func(*testing.T, *builder){
		"it is cordoned (fan is to be replaced); take another": func(t *testing.T, b *builder) {
			must.NoError(t, b.table().Cordon(t.Context(), a10, "fan is to be replaced"))
		},
		"unhealthy on node gpu-node-1: GPU is lost": func(_ *testing.T, b *builder) {
			lost := state
			lost.Health, lost.Unhealthy = "GPU is lost", units(0, 21)
			b.gpu(a10, lost)
		},
		"unhealthy on node gpu-node-1: NVML does not find it any more": func(t *testing.T, b *builder) {
			must.NoError(t, b.table().PutNode(t.Context(), allocator.NodeState{Name: "gpu-node-1", GPUs: []allocator.GPUID{}}))
		},
		"its node gpu-node-1 is dead": func(t *testing.T, b *builder) {
			b.store.put(t, allocator.NodeKey("gpu-node-1"), fmt.Sprintf(
				`{"name":"gpu-node-1","lease_seconds":90,"last_seen":%q}`, now.Format(time.RFC3339)))
		},
		"no device plugin reports it": func(t *testing.T, b *builder) {
			b.claim(owner("chat", "serve", "1b2c3d4e", "gpu-node-1"), allocator.Booking{GPU: a10, UnitMiB: 1024, Of: 21, Units: units(0, 1)})
			entry, err := b.store.Get(t.Context(), allocator.StateKey(a10))
			must.NoError(t, err)
			must.NoError(t, b.store.Apply(t.Context(), []allocator.Write{{Key: entry.Key, Version: entry.Version}}))
		},
		"has 1 free units of 1024 MiB, 2 are requested: not enough free units; units 1-20 are not offered: memory in use": func(_ *testing.T, b *builder) {
			full := state
			full.Health, full.Unhealthy = "memory in use", units(1, 20)
			b.gpu(a10, full)
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			b := oneGPUTable(t)
			change(t, b)
			code, _, errs := b.store.run(t, "claim", "--nomad-address", "http://127.0.0.1:1", "--gpu", string(a10), "--memory", "2GiB")
			must.Eq(t, ExitFailure, code)
			must.StrContains(t, errs, string(a10))
			must.StrContains(t, errs, want)
			_, found := b.held()
			must.False(t, found)
		})
	}
}

// The holder's name lets an operator find the process.
func TestHolder(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	must.NoError(t, err)
	current, err := user.Current()
	must.NoError(t, err)
	for name, test := range map[string]struct {
		env  map[string]string
		want string
	}{
		"user":         {env: map[string]string{"USER": "ada"}, want: "ada"},
		"by sudo":      {env: map[string]string{"USER": "root", "SUDO_USER": "ada"}, want: "ada"},
		"login name":   {env: map[string]string{"LOGNAME": "ada"}, want: "ada"},
		"no variables": {want: current.Username},
		"a long one":   {env: map[string]string{"USER": strings.Repeat("ä", 4000)}, want: strings.Repeat("ä", longestName)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := App{Getenv: func(name string) string { return test.env[name] }}
			must.Eq(t, test.want+"@"+cut(host), app.holder(false))
			must.Eq(t, fmt.Sprintf("%s@%s pid %d", test.want, cut(host), os.Getpid()), app.holder(true))
		})
	}
}

// status shows the name, and so does the error of a task that waits for the units.
func TestHolder_is_seen(t *testing.T) {
	t.Parallel()
	b, nomad := oneGPUTable(t), startNomad(t)
	nomad.unhealthy = units(0, 21)
	b.store.env = map[string]string{"USER": "ada"}
	code, _, errs := b.store.run(t, "claim", "--nomad-address", nomad.URL, "--gpu", string(a10), "--memory", "2GiB")
	must.Eq(t, ExitOK, code, must.Sprint(errs))
	claim, _ := b.held()
	must.StrContains(t, claim.Task, "ada@")
	_, text, _ := b.store.run(t, "status", "--width", "200")
	must.StrContains(t, text, claim.Task+" (outside Nomad)")
	err := b.table().Claim(context.Background(), owner("chat", "serve", "1b2c3d4e", "gpu-node-1"), allocator.Attempt{ID: "1"},
		[]allocator.Booking{{GPU: a10, UnitMiB: 1024, Of: 21, Units: claim.Units}})
	must.ErrorContains(t, err, claim.Task)
}
