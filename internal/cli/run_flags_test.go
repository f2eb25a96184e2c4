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

	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/planner/live"
	"nomad-gpu-mem/internal/planner/nomadtest"
	"nomad-gpu-mem/internal/words"
)

// scale does what an autoscaler does. Instances that Nomad stops end at once.
func scale(t *testing.T, nomad *nomadtest.Server, count int) {
	t.Helper()
	nomad.Do(func(n *nomadtest.Nomad) {
		job := nomadtest.Convert[*api.Job](t, n.Job("web"))
		job.TaskGroups[0].Count = &count
		n.Register(job)
		for _, alloc := range n.Allocs() {
			if alloc.DesiredStatus == "stop" {
				n.Finish(alloc.ID)
			}
		}
	})
}

func countOf(nomad *nomadtest.Server) (count int) {
	nomad.Do(func(n *nomadtest.Nomad) { count = n.Job("web").TaskGroups[0].Count })
	return count
}

// With --preserve-counts a scaled job keeps its counts when its file is submitted again.
func TestRunPreservesCounts(t *testing.T) {
	t.Parallel()
	w, nomad := planned(t)
	file := writeJob(t, webJob)
	run := func(args ...string) string {
		t.Helper()
		code, stdout, stderr := w.run(t, append(args, "--var=replicas=1", file)...)
		must.Eq(t, ExitOK, code, must.Sprint(stderr, stdout))
		return stdout
	}
	run("run", "--preserve-counts") // a new job has its own
	must.Eq(t, 1, countOf(nomad))
	for _, scaled := range []int{4, 0} {
		scale(t, nomad, scaled)
		must.StrContains(t, run("plan", "--preserve-counts"), "Group serve: "+words.Count(scaled, "instance"))
		run("run", "--preserve-counts", "--var=image=web:2")
		must.Eq(t, scaled, countOf(nomad))
	}
	run("run")
	must.Eq(t, 1, countOf(nomad))
}

// A job with another index than --check-index is left unchanged, also one that asks
// for no GPU memory.
func TestRunChecksTheIndex(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"planned": webJob, "plain": strings.Replace(webJob, `device "nvidia/gpu-mem" {}`, "memory = 64", 1)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, nomad := planned(t)
			file := writeJob(t, text)
			code, _, stderr := w.run(t, "run", "--check-index=7", "--var=replicas=1", file)
			must.Eq(t, ExitFailure, code)
			must.StrContains(t, stderr, "registered with another index")
			nomad.Do(func(n *nomadtest.Nomad) { must.Nil(t, n.Job("web")) })

			code, _, stderr = w.run(t, "run", "--check-index=0", "--var=replicas=1", file)
			must.Eq(t, ExitOK, code, must.Sprint(stderr))
			code, _, _ = w.run(t, "run", "--check-index=0", "--var=replicas=2", file)
			must.Eq(t, ExitFailure, code)
			must.Eq(t, 1, countOf(nomad))
			var index uint64
			nomad.Do(func(n *nomadtest.Nomad) { index = n.Job("web").JobModifyIndex })
			if name == "planned" {
				_, stdout, _ := w.run(t, "plan", "--var=replicas=2", file)
				must.StrContains(t, stdout, "index "+jsonText(t, index))
			}
			code, _, stderr = w.run(t, "run", "--check-index="+jsonText(t, index), "--var=replicas=2", file)
			must.Eq(t, ExitOK, code, must.Sprint(stderr))
			must.Eq(t, 2, countOf(nomad))
		})
	}
}

func jsonText(t *testing.T, v any) string { return string(textOf(t, v)) }

// Nomad's UI shows the file that a job came from, and its variables; replan keeps that.
func TestRunSubmitsTheSource(t *testing.T) {
	t.Parallel()
	w, nomad := planned(t)
	file, vars := writeJob(t, webJob), writeJob(t, "image = \"web:2\" # new\n")
	submission := func(version int) *api.JobSubmission {
		t.Helper()
		found, _, err := nomad.Client(t).Jobs().Submission("web", version, nil)
		must.NoError(t, err)
		return found
	}
	code, _, stderr := w.run(t, "run", "--shortlist=1", "--var=replicas=1", "--var-file", vars, file)
	must.Eq(t, ExitOK, code, must.Sprint(stderr))
	want := &api.JobSubmission{Source: webJob, Format: "hcl2", VariableFlags: map[string]string{"replicas": "1"}, Variables: submission(0).Variables}
	must.Eq(t, want, submission(0))
	must.RegexMatch(t, regexp.MustCompile(`^image *= *"web:2"\n$`), submission(0).Variables)

	_, stdout, _ := w.run(t, "replan", "--shortlist=3", "--threshold=3")
	must.StrContains(t, stdout, "has new pins")
	must.Eq(t, want, submission(1))

	object := filepath.Join(t.TempDir(), "job.json")
	text := `{"Job": {"ID": "web", "TaskGroups": []}}`
	must.NoError(t, os.WriteFile(object, []byte(text), 0o600))
	code, _, stderr = w.run(t, "run", object)
	must.Eq(t, ExitOK, code, must.Sprint(stderr))
	must.Eq(t, &api.JobSubmission{Source: text, Format: "json"}, submission(2))
}

// The environment's tokens reach a Nomad that takes them in the job.
func TestRunTakesTokensFromTheEnvironment(t *testing.T) {
	t.Parallel()
	w, nomad := planned(t)
	w.env["VAULT_TOKEN"], w.env["CONSUL_HTTP_TOKEN"] = "vault", "consul"
	code, _, stderr := w.run(t, "run", "--var=replicas=1", writeJob(t, webJob))
	must.Eq(t, ExitOK, code, must.Sprint(stderr))
	must.StrContains(t, string(nomad.Stored("web")), `"VaultToken":"vault"`)
	must.StrContains(t, string(nomad.Stored("web")), `"ConsulToken":"consul"`)
}

// With --detach the command ends before Nomad has decided; reservations stay for a while.
func TestRunDetached(t *testing.T) {
	t.Parallel()
	w, _ := planned(t)
	file := writeJob(t, webJob)
	code, stdout, stderr := w.run(t, "run", "--detach", "--var=replicas=1", file)
	must.Eq(t, ExitOK, code, must.Sprint(stderr))
	must.StrContains(t, stdout, "Nomad decides in evaluation 0000")
	code, stdout, _ = w.run(t, "status")
	must.Eq(t, ExitOK, code)
	must.StrContains(t, stdout, "reserved")

	code, _, stderr = w.run(t, "run", "--detach", "--follow", "--var=replicas=1", file)
	must.Eq(t, ExitUsage, code)
	must.StrContains(t, stderr, "exclude each other")
}

// With --follow the command waits for the deployment, and fails if that does.
func TestRunFollowsTheDeployment(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"successful", "failed"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			w, nomad := planned(t)
			nomad.OnDeployment = func(d *nomadtest.Deployment, seen int) {
				if seen == 2 {
					d.Status, d.StatusDescription = end, "Deployment has ended"
				}
			}
			code, stdout, stderr := w.run(t, "run", "--follow", "--verbose", "--var=replicas=2", writeJob(t, webJob))
			must.RegexMatch(t, regexp.MustCompile(`Deployment [0-9a-f-]{36} running: .*\(serve 0 of 2 healthy\)\n`), stdout)
			must.RegexMatch(t, regexp.MustCompile(`Deployment [0-9a-f-]{36} `+end+`: Deployment has ended`), stdout)
			must.RegexMatch(t, regexp.MustCompile(`serve +[0-9a-f-]{36} `), stdout)
			if end == "successful" {
				must.Eq(t, ExitOK, code, must.Sprint(stderr))
				return
			}
			must.Eq(t, ExitWaiting, code)
			must.StrContains(t, stderr, "is failed: Deployment has ended")
		})
	}
}

func TestRunFollowsAsJSON(t *testing.T) {
	t.Parallel()
	w, nomad := planned(t)
	nomad.OnDeployment = func(d *nomadtest.Deployment, _ int) { d.Status = "successful" }
	code, stdout, stderr := w.run(t, "run", "--follow", "--json", "--var=replicas=1", writeJob(t, webJob))
	must.Eq(t, ExitOK, code, must.Sprint(stderr))
	var report live.Report
	must.NoError(t, json.Unmarshal([]byte(stdout), &report))
	must.Eq(t, "successful", report.Deployment.Status)
	must.Eq(t, []live.DeploymentGroup{{Group: "serve", Desired: 1, Placed: 1}}, report.Deployment.Groups)
}
