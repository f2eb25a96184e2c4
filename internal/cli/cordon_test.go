// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"encoding/json"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/status"
)

func TestCordonAndUncordon(t *testing.T) {
	t.Parallel()
	w := cluster(t)
	code, stdout, stderr := w.run(t, "cordon", string(a10), "--reason=fan is loud")
	must.Eq(t, ExitOK, code)
	must.Eq(t, "", stderr)
	must.Eq(t, "GPU "+string(a10)+" takes no new task once Nomad knows, within about 10 s; 2 claims on it until they end\n", stdout)

	// The device plugin has not looked yet.
	_, stdout, _ = w.run(t, "status", "--gpu="+string(a10))
	must.StrContains(t, stdout, ": fan is loud")
	_, stdout, _ = w.run(t, "status", "--json", "--gpu="+string(a10))
	var report status.Report
	must.NoError(t, json.Unmarshal([]byte(stdout), &report))
	must.Eq(t, "fan is loud", report.Nodes[0].GPUs[0].Cordon.Reason)
	must.StrContains(t, report.Nodes[0].GPUs[0].Map, "!", must.Sprint("free units are unavailable"))
	must.Eq(t, 0, report.Nodes[0].GPUs[0].FreeMiB)

	code, stdout, _ = w.run(t, "uncordon", "GPU-4f1a")
	must.Eq(t, ExitOK, code)
	must.Eq(t, "GPU "+string(a10)+" takes new tasks again\n", stdout)
	_, stdout, _ = w.run(t, "uncordon", "GPU-4f1a")
	must.Eq(t, "GPU "+string(a10)+" was not cordoned\n", stdout)
	_, stdout, _ = w.run(t, "status", "--gpu="+string(a10))
	must.StrNotContains(t, stdout, "cordoned")
}

func TestCordonNamesOneGPU(t *testing.T) {
	t.Parallel()
	w := cluster(t)
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"cordon"}, ExitUsage, "takes one GPU"},
		{[]string{"cordon", "GPU-1", "GPU-2"}, ExitUsage, "takes one GPU"},
		{[]string{"cordon", "GPU-9"}, ExitFailure, `no GPU in the allocation table has the UUID "GPU-9"`},
		{[]string{"uncordon", "GPU-"}, ExitUsage, string(a10) + ", " + string(a10two)},
	} {
		code, _, stderr := w.run(t, tc.args...)
		must.Eq(t, tc.code, code)
		must.StrContains(t, stderr, tc.want)
	}
	w.Fail(allocator.ErrDenied)
	code, _, stderr := w.run(t, "cordon", "GPU-4f1a")
	must.Eq(t, ExitTable, code)
	must.StrContains(t, stderr, "--table-token-file")
}

// A command that changes the table needs a token that may write, whether Consul
// denies the read or, with a token that may read, the write.
func TestDeniedChangeAsksForAWritingToken(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"cordon", "GPU-4f1a"}, {"profile", "set", "p", "--base=1GiB"}} {
		for _, mayRead := range []bool{true, false} {
			w := cluster(t)
			if mayRead {
				w.FailApply(allocator.ErrDenied, false)
			} else {
				w.Fail(allocator.ErrDenied)
			}
			code, _, stderr := w.run(t, args...)
			must.Eq(t, ExitTable, code, must.Sprint(args))
			must.StrContains(t, stderr, "cannot change the allocation table")
			must.StrContains(t, stderr, `policy = "write"`)
		}
	}
}

func TestCordonForAReset(t *testing.T) {
	t.Parallel()
	w := cluster(t)
	_, _, _ = w.run(t, "cordon", string(a10), "--reason=row remapping pending")
	code, stdout, stderr := w.run(t, "cordon", "--release", string(a10))
	must.Eq(t, ExitOK, code, must.Sprint(stderr))
	must.StrContains(t, stdout, "closes its NVML session")
	must.StrContains(t, stdout, "uncordon")
	_, stdout, _ = w.run(t, "status", "--gpu="+string(a10))
	must.StrContains(t, stdout, ": row remapping pending; to be released for a reset", must.Sprint("the reason stays"))

	_, _, _ = w.run(t, "cordon", string(a10), "--reason=fan is loud")
	_, stdout, _ = w.run(t, "status", "--gpu="+string(a10))
	must.StrNotContains(t, stdout, "for a reset")
}
