// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/planner/live"
	"nomad-gpu-mem/internal/planner/nomadtest"
)

const webJob = `
variable "replicas" { type = number }
variable "image" {
  type    = string
  default = "web:1"
}
job "web" {
  group "serve" {
    count = var.replicas
    task "model" {
      driver = "gpu-docker"
      config { image = var.image }
      meta {
        gpu_mem_profile = "llama"
        gpu_mem_batch   = "8"
      }
      resources {
        device "nvidia/gpu-mem" {}
      }
    }
  }
}`

// planned is a world with a Nomad and a profile.
func planned(t *testing.T) (*world, *nomadtest.Server) {
	t.Helper()
	gpu := nomadtest.GPU{Model: "NVIDIA A10", Units: 22, UnitMiB: 1024}
	nomad := nomadtest.Serve(t, nomadtest.Nodes(3, gpu, gpu)...)
	w := newWorld()
	w.env = map[string]string{"NOMAD_ADDR": nomad.URL}
	code, _, stderr := w.run(t, "profile", "set", "llama", "--base", "4GiB", "--per", "batch=120.5MiB")
	must.Eq(t, ExitOK, code, must.Sprint(stderr))
	return w, nomad
}

func writeJob(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "job.nomad.hcl")
	must.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestPlanAndRun(t *testing.T) {
	t.Parallel()
	w, _ := planned(t)
	file := writeJob(t, webJob)
	code, stdout, stderr := w.run(t, "plan", "--var", "replicas=2", file)
	must.Eq(t, ExitOK, code, must.Sprint(stderr))
	for _, part := range []string{"Job web, policy least-waste", "Group serve: 2 instances, pin shortlist (3 nodes)", "NVIDIA A10", "5120"} {
		must.StrContains(t, stdout, part)
	}
	code, stdout, stderr = w.run(t, "plan", "--json", "--var", "replicas=2", file)
	must.Eq(t, ExitOK, code, must.Sprint(stderr))
	var plan planner.Plan
	must.NoError(t, json.Unmarshal([]byte(stdout), &plan))

	code, stdout, stderr = w.run(t, "run", "--json", "--var", "replicas=2", file)
	must.Eq(t, ExitOK, code, must.Sprint(stderr))
	var report live.Report
	must.NoError(t, json.Unmarshal([]byte(stdout), &report))
	must.Eq(t, plan.Groups, report.Plan.Groups)
	must.Len(t, 2, report.Outcomes)

	code, stdout, _ = w.run(t, "run", "--var", "replicas=3", "--pin", "hard", file)
	must.Eq(t, ExitOK, code)
	must.StrContains(t, stdout, "keeps its pin (shortlist)")
	must.StrContains(t, stdout, "yes")
	code, stdout, _ = w.run(t, "run", "--var", "replicas=3", file)
	must.Eq(t, ExitOK, code)
	must.StrContains(t, stdout, "Nothing had to be started.")
	code, stdout, _ = w.run(t, "replan", "--threshold=1")
	must.Eq(t, ExitOK, code)
	must.StrContains(t, stdout, "default/web: needs no new pins")
}

// run and replan reserve units: the hint names a token that may write.
func TestRunWithAReadOnlyTokenAsksForAWritingOne(t *testing.T) {
	t.Parallel()
	for _, mayRead := range []bool{true, false} {
		w, _ := planned(t)
		file := writeJob(t, webJob)
		if mayRead {
			w.FailApply(allocator.ErrWriteDenied, false)
		} else {
			w.Fail(allocator.ErrDenied)
		}
		code, _, stderr := w.run(t, "run", "--var", "replicas=2", file)
		must.Eq(t, ExitTable, code, must.Sprint(stderr))
		must.StrContains(t, stderr, "cannot change the allocation table")
		must.StrContains(t, stderr, `policy = "write"`)
		must.StrNotContains(t, stderr, `policy = "read"`)
	}
}

// Of a variable that is given twice the last counts, and the flag before a file.
func TestVariables(t *testing.T) {
	t.Parallel()
	text, object := writeJob(t, "a = 1 # one\nb = [\n  \"x\",\n]\nc = <<END\ntext\nEND\n"), writeJob(t, `{"a": 2, "d": {"e": "${1 + 2}"}}`)
	flags := jobFlags{varFiles: []string{text, object}, vars: []string{"b=[7]", "a=3", "a=4"}}
	text, err := flags.variables()
	must.NoError(t, err)
	file, diagnostics := hclsyntax.ParseConfig([]byte(text), "variables.hcl", hcl.InitialPos)
	must.False(t, diagnostics.HasErrors(), must.Sprint(text))
	attributes, _ := file.Body.JustAttributes()
	values := map[string]string{}
	for name, attribute := range attributes {
		value, diagnostics := attribute.Expr.Value(nil)
		must.False(t, diagnostics.HasErrors(), must.Sprint(name))
		values[name] = value.GoString()
	}
	must.Eq(t, map[string]string{
		"a": `cty.StringVal("4")`,
		"b": `cty.TupleVal([]cty.Value{cty.NumberIntVal(7)})`,
		"c": `cty.StringVal("text\n")`,
		"d": `cty.ObjectVal(map[string]cty.Value{"e":cty.NumberIntVal(3)})`,
	}, values)

	for _, bad := range []jobFlags{{vars: []string{"a=[1"}}, {vars: []string{"a b=1"}}, {varFiles: []string{writeJob(t, "a = \n")}}} {
		_, err := bad.variables()
		must.Error(t, err)
	}
}

// run of a job that asks for no GPU memory says what was started, and what not.
func TestRunOfOtherJobs(t *testing.T) {
	t.Parallel()
	w, _ := planned(t)
	plain := strings.NewReplacer(`device "nvidia/gpu-mem" {}`, "memory = 64", "var.replicas", "1").Replace(webJob)
	file := writeJob(t, plain)
	code, stdout, stderr := w.run(t, "run", "--var=replicas=1", file)
	must.Eq(t, ExitOK, code, must.Sprint(stderr))
	must.StrContains(t, stdout, "Job web asks for no GPU memory")
	must.RegexMatch(t, regexp.MustCompile(`serve +[0-9a-f]{8} +node-\d +- +-\n`), stdout)
	code, stdout, _ = w.run(t, "run", "--var=replicas=1", file)
	must.Eq(t, ExitOK, code)
	must.StrContains(t, stdout, "Nothing had to be started.")

	large := writeJob(t, strings.NewReplacer("64", "99999999", `job "web"`, `job "large"`).Replace(plain))
	code, stdout, stderr = w.run(t, "run", "--var=replicas=1", large)
	must.Eq(t, ExitWaiting, code)
	must.StrContains(t, stdout, "Nothing was started.")
	must.StrContains(t, stderr, "no place for all of large")
}

func TestPlanOfWhatFitsNowhere(t *testing.T) {
	t.Parallel()
	w, _ := planned(t)
	code, stdout, stderr := w.run(t, "plan", "--var", "replicas=30", writeJob(t, webJob))
	must.Eq(t, ExitWaiting, code)
	must.StrContains(t, stdout, "6 instances fit nowhere")
	must.StrContains(t, stdout, "3 units short")
	must.StrContains(t, stderr, "6 instances of web fit nowhere now")
}

func TestPlannerErrors(t *testing.T) {
	t.Parallel()
	file := writeJob(t, webJob)
	tests := []struct {
		args []string
		code int
		want string
	}{
		{[]string{"plan"}, ExitUsage, "takes one job file"},
		{[]string{"plan", "/nowhere/job.hcl"}, ExitUsage, "/nowhere/job.hcl"},
		{[]string{"plan", writeJob(t, "{}")}, ExitUsage, "ID is missing\n"},
		{[]string{"run", writeJob(t, `{"ID": "x", "TaskGroups": [null]}`)}, ExitUsage, "null in a list"},
		{[]string{"plan", "--policy=best", file}, ExitUsage, `unknown placement policy "best"`},
		{[]string{"plan", "--pin=firm", file}, ExitUsage, `invalid pin "firm"`},
		{[]string{"plan", "--shortlist=0", file}, ExitUsage, "--shortlist must be at least 1, got 0"},
		{[]string{"plan", "--balance=1,2", file}, ExitUsage, "three weights"},
		{[]string{"plan", "--balance=1,NaN,1", file}, ExitUsage, "--balance: invalid weight NaN"},
		{[]string{"plan", "--balance=1,1,-1", file}, ExitUsage, "invalid weight -1"},
		{[]string{"run", "--var=replicas", file}, ExitUsage, "name=value"},
		{[]string{"run", file}, ExitFailure, `"replicas"`},
		{[]string{"run", "--var=replicas=1", writeJob(t, strings.Replace(webJob, "llama", "lama", 1))}, ExitFailure, `profile "lama" not found`},
		{[]string{"run", "--var=replicas=1", writeJob(t, strings.Replace(webJob, "gpu_mem_batch", "gpu_mem_bach", 1))}, ExitFailure, "batch is missing"},
		{[]string{"webhook", "--on-failure=maybe"}, ExitUsage, "warn or error"},
		{[]string{"webhook", "--tls-cert=x"}, ExitUsage, "must be set together"},
		{[]string{"webhook", "--token-file=/nowhere"}, ExitUsage, "/nowhere"},
	}
	for _, tc := range tests {
		t.Run(tc.want, func(t *testing.T) {
			t.Parallel()
			w, nomad := planned(t)
			code, stdout, stderr := w.run(t, tc.args...)
			must.Eq(t, tc.code, code)
			must.Eq(t, "", stdout)
			must.StrContains(t, stderr, tc.want)
			nomad.Do(func(n *nomadtest.Nomad) { must.SliceEmpty(t, n.Allocs()) })
		})
	}
}

func TestPlannerWithoutATable(t *testing.T) {
	t.Parallel()
	w, _ := planned(t)
	w.Fail(allocator.ErrUnavailable)
	for _, args := range [][]string{{"plan", "--var=replicas=1", writeJob(t, webJob)}, {"run", "--var=replicas=1", writeJob(t, webJob)}, {"replan"}} {
		code, _, stderr := w.run(t, args...)
		must.Eq(t, ExitTable, code, must.Sprint(args))
		must.StrContains(t, stderr, "Is Consul running there?")
	}
}

func TestReplanOfNoJob(t *testing.T) {
	t.Parallel()
	w, _ := planned(t)
	code, stdout, stderr := w.run(t, "replan", "nonesuch")
	must.Eq(t, ExitFailure, code)
	must.Eq(t, "", stdout)
	must.StrContains(t, stderr, `no job "nonesuch"`)
}

// What no GPU could ever hold is distinguished from what waits for free units.
func TestPlanOfWhatNeverFits(t *testing.T) {
	t.Parallel()
	w, _ := planned(t)
	code, stdout, _ := w.run(t, "plan", "--var=replicas=1", writeJob(t, strings.Replace(webJob, `gpu_mem_batch   = "8"`, `gpu_mem_batch   = "999"`, 1)))
	must.Eq(t, ExitWaiting, code)
	must.StrContains(t, stdout, "1 instance fits nowhere, and would not if nothing else ran:")
	must.StrContains(t, stdout, "has 22")
}

func TestQuoteHCL(t *testing.T) {
	t.Parallel()
	must.Eq(t, `"a \"b\" $${c} %%{d} \\"`, quoteHCL(`a "b" ${c} %{d} \`))
}

func TestProfileCommands(t *testing.T) {
	t.Parallel()
	w := newWorld()
	run := func(want int, args ...string) string {
		t.Helper()
		code, stdout, stderr := w.run(t, append([]string{"profile"}, args...)...)
		must.Eq(t, want, code, must.Sprint(stderr))
		return stdout + stderr
	}
	must.StrContains(t, run(ExitOK, "list"), "No profiles")
	must.StrContains(t, run(ExitOK, "set", "resnet50", "--base", "1500", "--per", "batch=120.5MiB", "--min=2GiB", "--max=24GiB", "--about", "fp16"),
		"resnet50: 1500 MiB + 120.5 × batch, at least 2048, at most 24576")
	must.StrContains(t, run(ExitOK, "list"), "fp16")
	must.StrContains(t, run(ExitOK, "show", "resnet50"), "120.5 × batch")
	must.StrContains(t, run(ExitOK, "show", "resnet50", "--json"), `"base_mib": 1500`)
	must.StrContains(t, run(ExitOK, "test", "resnet50", "batch=8"), "2464 MiB: 3 units of 1024 MiB")
	must.StrContains(t, run(ExitOK, "test", "resnet50", "batch=8", "--unit=512MiB"), "5 units of 512 MiB")
	must.StrContains(t, run(ExitFailure, "test", "resnet50"), "batch is missing")
	must.StrContains(t, run(ExitFailure, "test", "resnet50", "batch=9999"), "at most 24576")
	must.StrContains(t, run(ExitUsage, "test", "resnet50", "batch"), "name=value")
	must.StrContains(t, run(ExitUsage, "set", "odd", "--base", "much"), "invalid size")
	must.StrContains(t, run(ExitUsage, "set", "odd", "--base", "9999999999GiB"), "e+13 MiB, want 0 to 16777216")
	must.StrContains(t, run(ExitUsage, "set", "odd"), "neither a base nor an attribute")
	must.StrContains(t, run(ExitUsage, "set", "odd", "--base=1", "--min=2GiB", "--max=1GiB"), "above the most")
	must.StrContains(t, run(ExitUsage, "set", "odd", "--per=planned=1MiB"), "gpu_mem_planned has another meaning")
	must.StrContains(t, run(ExitUsage, "set"), "the name of one profile")
	must.StrContains(t, run(ExitFailure, "show", "vgg"), "profile list")
	run(ExitOK, "delete", "resnet50")
	must.StrContains(t, run(ExitFailure, "delete", "resnet50"), "profile not found")

	w.put(t, allocator.ProfileKey("bad"), "{")
	must.StrContains(t, run(ExitUnreadable, "list"), "profiles/bad")
}

// The webhook plans as the commands do, and stops when its context ends.
func TestWebhookCommand(t *testing.T) {
	t.Parallel()
	w, _ := planned(t)
	address, stop := serveWebhook(t, w)
	defer stop()
	job := `{"ID": "web", "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "gpu-docker",
	  "Resources": {"Devices": [{"Name": "nvidia/gpu-mem", "Count": 3}]}}]}]}`
	var review struct {
		Patch    []struct{ Path string }
		Warnings []string
		Errors   []string
	}
	must.NoError(t, json.Unmarshal(post(t, "http://"+address+"/v1/patch", []byte(job)), &review))
	must.SliceEmpty(t, review.Warnings)
	must.Len(t, 4, review.Patch)
}
