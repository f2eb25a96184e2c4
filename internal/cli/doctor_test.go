// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/version"
)

// ward is a table with a proven orphan claim and a value that cannot be read, and
// the Nomad that proves the orphan.
func ward(t *testing.T) (*builder, *fakeNomad) {
	b, nomad := oneGPUTable(t), startNomad(t)
	b.store.put(t, allocator.NodeKey("gpu-node-1"), `{"name":"gpu-node-1","version":"`+version.Version+`","last_seen":"`+now.Format(time.RFC3339)+`"}`)
	task := owner("chat", "serve", "1b2c3d4e", "gpu-node-1")
	b.ago(time.Hour).claim(task, allocator.Booking{GPU: a10, UnitMiB: 1024, Of: 21, Units: units(0, 4)})
	nomad.allocs = append(nomad.allocs, allocation(task.Alloc, "complete", 0, 1, 2, 3))
	b.store.put(t, allocator.ClaimsKey(h100), "20 GiB")
	return b, nomad
}

func (b *builder) claims() (count int) {
	snapshot, err := b.table().Snapshot(b.t.Context())
	must.NoError(b.t, err)
	for _, gpu := range snapshot.GPUs {
		count += len(gpu.Claims())
	}
	return count + len(snapshot.Problems)
}

func TestDoctor_says_what_it_would_do(t *testing.T) {
	t.Parallel()
	b, nomad := ward(t)
	code, out, errs := b.store.run(t, "doctor", "--nomad-address", nomad.URL)
	must.Eq(t, ExitFindings, code, must.Sprint(errs))
	for _, part := range []string{
		"LEAK  chat/serve (alloc 1b2c3d4e), " + string(a10) + ", gpu-node-1",
		"units 0-3 are claimed, but its allocation has ended in Nomad", "4096 MiB are unavailable", "do:   release the claim",
		"UNREADABLE  " + allocator.ClaimsKey(h100), "2 findings; asked: the table (Consul 127.0.0.1:8500, prefix gpu-mem), nomad",
	} {
		must.StrContains(t, out, part)
	}
	must.Eq(t, 2, b.claims()) // nothing was done
}

func TestDoctor_fixes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args   []string
		answer string
		left   int
	}{
		"the safe":          {args: []string{"--fix", "--json"}, left: 1},
		"after a no":        {args: []string{"--fix"}, answer: "n\n", left: 1},
		"after no answer":   {args: []string{"--fix"}, left: 1},
		"after a yes":       {args: []string{"--fix"}, answer: "y\n", left: 0},
		"all":               {args: []string{"--fix", "--yes"}, left: 0},
		"nothing by itself": {args: []string{"--yes"}, left: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, nomad := ward(t)
			root := b.store.app()
			var out, errs bytes.Buffer
			cmd := root.newRoot()
			cmd.SetArgs(append([]string{"doctor", "--nomad-address", nomad.URL}, test.args...))
			cmd.SetIn(strings.NewReader(test.answer))
			cmd.SetOut(&out)
			cmd.SetErr(&errs)
			err := cmd.ExecuteContext(t.Context())
			must.Eq(t, test.left > 0, err != nil, must.Sprint(out.String(), err))
			must.Eq(t, test.left, b.claims())
		})
	}
}

func TestDoctor_JSON(t *testing.T) {
	t.Parallel()
	b, nomad := ward(t)
	code, out, _ := b.store.run(t, "doctor", "--json", "--fix", "--nomad-address", nomad.URL)
	must.Eq(t, ExitFindings, code)
	var report doctorReport
	must.NoError(t, json.Unmarshal([]byte(out), &report))
	must.Eq(t, []string{"nomad"}, report.Asked)
	must.Len(t, 2, report.Findings)
	must.False(t, report.Findings[0].Fixed)
	must.True(t, report.Findings[1].Fixed)
}

func TestDoctor_of_a_table_that_is_well(t *testing.T) {
	t.Parallel()
	b := oneGPUTable(t)
	b.store.put(t, allocator.NodeKey("gpu-node-1"), `{"name":"gpu-node-1","version":"`+version.Version+`","last_seen":"`+now.Format(time.RFC3339)+`"}`)
	code, out, errs := b.store.run(t, "doctor")
	must.Eq(t, ExitOK, code, must.Sprint(out, errs))
	must.StrContains(t, out, "0 findings")
	code, _, errs = b.store.run(t, "doctor", "--nomad-address", "http://127.0.0.1:1")
	must.Eq(t, ExitFailure, code)
	must.StrContains(t, errs, "127.0.0.1:1")
}

// A task of a disconnected node may reconnect, so its claim is not an orphan before Nomad calls
// the allocation lost.
func TestDoctor_of_a_disconnected_node(t *testing.T) {
	t.Parallel()
	for status, want := range map[string]string{"unknown": "0 findings", "running": "0 findings", "lost": "Nomad has lost its node"} {
		b, nomad := oneGPUTable(t), startNomad(t)
		b.store.put(t, allocator.NodeKey("gpu-node-1"), `{"name":"gpu-node-1","version":"`+version.Version+`","last_seen":"`+now.Format(time.RFC3339)+`"}`)
		task := owner("chat", "serve", "1b2c3d4e", "gpu-node-1")
		b.ago(time.Hour).claim(task, allocator.Booking{GPU: a10, UnitMiB: 1024, Of: 21, Units: units(0, 4)})
		nomad.allocs = append(nomad.allocs, allocation(task.Alloc, status, 0, 1, 2, 3))
		_, out, _ := b.store.run(t, "doctor", "--fix", "--json=false", "--nomad-address", nomad.URL)
		must.StrContains(t, out, want, must.Sprint(status))
		must.Eq(t, 1, b.claims(), must.Sprint(status))
	}
}
