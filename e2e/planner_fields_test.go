// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/planner"
)

// scaledJob has a service, for which Nomad adds its own constraint.
const scaledJob = `
variable "text" { type = string }
job "scaled" {
  update { min_healthy_time = "1s" }
  group "serve" {
    count = 1
    scaling {
      min = 0
      max = 9
    }
    service {
      name     = "scaled"
      provider = "nomad"
    }
    task "model" {
      driver       = "gpu-docker"
      kill_timeout = "2s"
      env { TEXT = var.text }
      config {
        image   = "gpu-mem/busybox:1"
        command = "sleep"
        args    = ["infinity"]
      }
      resources {
        cpu    = 20
        memory = 32
        device "nvidia/gpu-mem" { count = 6 }
      }
    }
  }
}`

// A job that is submitted with a list of one node is scaled past it: replan --watch finds
// more nodes, running tasks keep their containers, and the job's source stays readable.
func testScaled(t *testing.T, c *cluster) {
	file := filepath.Join(c.run, "scaled.nomad.hcl")
	must.NoError(t, os.WriteFile(file, []byte(scaledJob), 0o600))
	t.Cleanup(func() { c.remove(t, "scaled") })
	out := c.cli(t, "run", "--follow", "--shortlist=1", "--var=text=a b", file)
	must.StrContains(t, out, "successful")
	must.StrContains(t, out, "serve 1 of 1 healthy")
	source := func() *api.JobSubmission {
		t.Helper()
		job, _, err := c.nomad.Jobs().Info("scaled", nil)
		must.NoError(t, err)
		found, _, err := c.nomad.Jobs().Submission("scaled", int(*job.Version), nil)
		must.NoError(t, err)
		return found
	}
	must.Eq(t, &api.JobSubmission{Source: scaledJob, Format: "hcl2", VariableFlags: map[string]string{"text": "a b"}}, source())
	before := containersOf(c.waitHeld(t, "scaled", 1))

	watching := c.command("replan", "--watch", "--threshold=1")
	var log bytes.Buffer
	watching.Stdout, watching.Stderr = &log, &log
	must.NoError(t, watching.Start())
	count := 6
	_, _, err := c.nomad.Jobs().Scale("scaled", "serve", &count, "as an autoscaler does", false, nil, nil)
	must.NoError(t, err)
	held := c.waitHeld(t, "scaled", count)
	must.SliceContains(t, containersOf(held), before[0])
	must.NoError(t, watching.Process.Signal(syscall.SIGTERM))
	must.NoError(t, watching.Wait(), must.Sprint(log.String()))
	must.StrContains(t, log.String(), "default/scaled: has new pins")
	must.Eq(t, scaledJob, source().Source)

	// Submitted again with another text, all instances stay with --preserve-counts.
	c.cli(t, "run", "--preserve-counts", "--var=text=c", file)
	job, _, err := c.nomad.Jobs().Info("scaled", nil)
	must.NoError(t, err)
	must.Eq(t, count, *job.TaskGroups[0].Count)
}

// If a job has blocks that are newer than the agent, run keeps what the agent keeps.
func testNewerBlocks(t *testing.T, c *cluster) {
	job := gpuJob("newer", 2, func(job *api.Job) {
		once, lost := true, time.Hour
		group := job.TaskGroups[0]
		job.UI = &api.JobUIConfig{Description: "a model"}
		group.Disconnect = &api.DisconnectStrategy{LostAfter: &lost}
		group.Tasks[0].Actions = []*api.Action{{Name: "pull", Command: "true"}}
		text, at := "A=1", "local/e"
		group.Tasks[0].Templates = []*api.Template{{EmbeddedTmpl: &text, DestPath: &at, Once: &once}}
	})
	text, err := json.Marshal(map[string]any{"Job": job})
	must.NoError(t, err)
	file := filepath.Join(c.run, "newer.json")
	must.NoError(t, os.WriteFile(file, text, 0o600))
	t.Cleanup(func() { c.remove(t, "newer") })
	stored := func() []byte {
		t.Helper()
		var raw json.RawMessage
		_, err := c.nomad.Raw().Query("/v1/job/newer", &raw, nil)
		must.NoError(t, err)
		return raw
	}
	c.cli(t, "run", file)
	planned := stored()
	request, err := http.NewRequest(http.MethodPut, c.vars["NOMAD_ADDR"]+"/v1/jobs", bytes.NewReader(text))
	must.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	must.NoError(t, err)
	must.NoError(t, response.Body.Close())
	must.Eq(t, http.StatusOK, response.StatusCode)
	plain := stored()
	must.True(t, strings.Contains(string(planned), planner.MetaPlanned))
	for _, versions := range [][2][]byte{{plain, planned}, {planned, plain}} {
		lost, err := planner.Lost(versions[0], versions[1])
		must.NoError(t, err)
		must.SliceEmpty(t, lost, must.Sprint(fmt.Sprintf("%s\n%s", plain, planned)))
	}
}
