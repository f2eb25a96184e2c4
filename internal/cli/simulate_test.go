// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

// writeTrace makes a small trace in the format of the openb trace.
func writeTrace(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	nodes := "sn,cpu_milli,memory_mib,gpu,model\nnode-0,64000,262144,2,T4\nnode-1,96000,393216,4,G2\n"
	tasks := "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" +
		"pod-0,8000,16384,1,1000,\npod-1,4000,8192,1,500,T4\npod-2,2000,4096,1,250,\npod-3,4000,8192,0,0,\n"
	must.NoError(t, os.WriteFile(filepath.Join(dir, "openb_node_list_gpu_node.csv"), []byte(nodes), 0o600))
	must.NoError(t, os.WriteFile(filepath.Join(dir, "openb_pod_list_small.csv"), []byte(tasks), 0o600))
	return dir
}

func TestSimulate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		args string
		want []string // the first column, without the head
	}{
		{name: "default", args: "", want: []string{"least-waste"}},
		{name: "policies", args: "--policy fgd,pack --demand both", want: []string{"fgd", "fgd (learned)", "pack"}},
		{name: "loads", args: "--departures 0.5,0.9", want: []string{"least-waste", "least-waste"}},
		{name: "samples", args: "--sample 1x2,1x4 --departures 0.5", want: []string{"least-waste", "least-waste"}},
		{name: "departures", args: "--departures 0.9 --seeds 4", want: []string{"least-waste"}},
		{name: "balanced", args: "--policy balanced --balance 1,2,0.5", want: []string{"balanced"}},
		{
			name: "nomad", args: "--scheduler nomad --pin none,hard --seeds 1",
			want: []string{"nomad", "nomad + hard by least-waste"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			w.env = map[string]string{"GPU_MEM_TRACE": writeTrace(t)}
			code, out, errs := w.run(t, append([]string{"simulate", "--list", "small"}, strings.Fields(test.args)...)...)
			must.Eq(t, ExitOK, code, must.Sprint(errs))
			must.Eq(t, "", errs, must.Sprint("no bar where there is no terminal"))
			var got []string
			table, _, _ := strings.Cut(out, "\n\n") // what follows are differences
			for line := range strings.Lines(table) {
				name, _, _ := strings.Cut(line, "  ")
				got = append(got, name)
			}
			must.Eq(t, append([]string{"scheduler"}, test.want...), got)
		})
	}
}

func TestSimulateWritesFiles(t *testing.T) {
	t.Parallel()
	sheet, plot := filepath.Join(t.TempDir(), "runs.csv"), filepath.Join(t.TempDir(), "runs.svg")
	for _, test := range [][]string{nil, {"--departures", "0.5,1"}} {
		args := []string{"simulate", "--trace", writeTrace(t), "--list", "small", "--csv", sheet, "--plot", plot}
		code, _, errs := newWorld().run(t, append(args, test...)...)
		must.Eq(t, ExitOK, code, must.Sprint(errs))
		for _, path := range []string{sheet, plot} {
			info, err := os.Stat(path)
			must.NoError(t, err)
			must.Positive(t, info.Size())
			must.NoError(t, os.Remove(path))
		}
	}
}

// Several policies are compared with the first, in every test of its own.
func TestSimulateShowsDifferences(t *testing.T) {
	t.Parallel()
	code, out, errs := newWorld().run(t, "simulate", "--trace", writeTrace(t), "--list", "small",
		"--policy", "pack,best-fit", "--departures", "0.5,1")
	must.Eq(t, ExitOK, code, must.Sprint(errs))
	_, differences, _ := strings.Cut(out, "\n\n")
	must.Eq(t, 2, strings.Count(differences, "best-fit - pack"))
	must.StrContains(t, differences, "load 0.5")
}

func TestSimulateUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                           "no trace: set",
		"--trace x --policy worst":   "unknown placement policy",
		"--trace x --demand guessed": "--demand=guessed",
		"--trace x --scheduler k8s":  "--scheduler=k8s",
		"--trace x --scheduler nomad --pin none,nail":   `invalid pin "nail"`,
		"--trace x --balance 1,2":                       "three weights",
		"--trace x --seeds 9-3":                         "invalid seed or range",
		"--trace x --seeds 1-5000":                      "invalid seed or range",
		"--trace x --departures -1":                     "multiples of the cluster",
		"--trace x --departures NaN":                    "multiples of the cluster",
		"--trace x --inflation NaN":                     "multiples of the cluster",
		"--trace x --inflation inf":                     "at most 100",
		"--trace x --policy=":                           "nothing to compare",
		"--trace x --scheduler nomad --pin=":            "nothing to compare",
		"--trace x --balance 1,NaN,1 --policy=balanced": "--balance: invalid weight NaN",
		"--trace x --plot x.gif":                        ".png or .svg",
		"--trace x --departures 1 --plot x.svg":         "more than one",
		"--trace x --sample 1x2,1x4 --plot x.svg":       "only one",
		"--trace x --sample 8":                          "for example 8x4",
		"--trace x --sample 0x4":                        "for example 8x4",
		"--trace x --csv /nowhere/x.csv":                "/nowhere",
		"--trace x --plot /nowhere/x.svg":               "/nowhere",
		"--trace x here":                                "takes no argument",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			code, _, errs := newWorld().run(t, append([]string{"simulate"}, strings.Fields(args)...)...)
			must.Eq(t, ExitUsage, code)
			must.StrContains(t, errs, want)
		})
	}
	code, _, errs := newWorld().run(t, "simulate", "--trace", t.TempDir())
	must.Eq(t, ExitFailure, code)
	must.StrContains(t, errs, "no such file")
}
