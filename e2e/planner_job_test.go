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
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/planner"
)

// The planner works as a Nomad job, as in the example. replan has Nomad's address, since with
// a workload identity Nomad 1.6 does not let it change a job. The webhook uses the socket of
// the task API with a workload identity, and requires the token from the Nomad variable.
func testPlannerJob(t *testing.T, c *cluster) {
	text, err := os.ReadFile("../example/planner-service/planner-service.nomad.hcl")
	must.NoError(t, err)
	job, err := c.nomad.Jobs().ParseHCLOpts(&api.JobsParseRequest{
		JobHCL: string(text), Canonicalize: true,
		Variables: c.expand(t, "driver = \"raw_exec\"\nprogram = \"$PROGRAM\"\nconsul = \"$CONSUL\"\nnomad = \"$NOMAD\""),
	})
	must.NoError(t, err)
	variable := api.NewVariable("nomad/jobs/gpu-planner")
	variable.Items = api.VariableItems{"consul_token": "", "webhook_token": "t", "nomad_token": ""}
	_, _, err = c.nomad.Variables().Create(variable, nil)
	must.NoError(t, err)
	c.submit(t, job)
	eventually(t, startTime, "the planner's tasks run", func() error {
		stubs, _, err := c.nomad.Jobs().Allocations("gpu-planner", false, nil)
		if err != nil {
			return err
		}
		running := 0
		for _, stub := range stubs {
			for name, state := range stub.TaskStates {
				if state.Failed || state.Restarts > 0 {
					return fmt.Errorf("task %s: %s", name, eventTexts(state))
				}
				if state.State == "running" {
					running++
				}
			}
		}
		if running != 2 {
			return fmt.Errorf("%d of 2 run", running)
		}
		return nil
	})

	path := filepath.Join(c.run, "outgrown.json")
	c.writeJob(t, path, gpuJob("outgrown", 1))
	t.Cleanup(func() { c.remove(t, "outgrown") })
	c.runPlanned(t, "--shortlist=1", path)
	eventually(t, startTime, "replan gives the job a list of its own length", func() error {
		registered, _, err := c.nomad.Jobs().Info("outgrown", nil)
		if err != nil {
			return err
		}
		if *registered.Version == 0 {
			return fmt.Errorf("it is as it was submitted; replan says: %s", c.logsOf(t, "replan"))
		}
		return nil
	})

	service, _, err := c.nomad.Services().Get("gpu-planner", nil)
	must.NoError(t, err)
	must.Len(t, 1, service)
	url := fmt.Sprintf("http://%s:%d/v1/mutate", service[0].Address, service[0].Port)
	for token, want := range map[string]int{"t": http.StatusOK, "other": http.StatusUnauthorized} {
		var planned api.Job
		must.Eq(t, want, c.mutate(t, url, token, gpuJob("hooked", 1), &planned))
		if want == http.StatusOK {
			must.Eq(t, "shortlist", planned.TaskGroups[0].Meta[planner.MetaPlanned])
		}
	}
}

// logsOf returns the output of a task of that name on a node of this cluster.
func (c *cluster) logsOf(t *testing.T, task string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(c.run, "nomad*/alloc/*/alloc/logs", task+".std*.0"))
	must.NoError(t, err)
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		must.NoError(t, err)
		all.Write(text)
	}
	return all.String()
}

// writeJob writes a job in the form of Nomad's API.
func (c *cluster) writeJob(t *testing.T, path string, job *api.Job) {
	t.Helper()
	body, err := json.Marshal(job)
	must.NoError(t, err)
	must.NoError(t, os.WriteFile(path, body, 0o600))
}

// mutate sends a job to a webhook, and returns the changed job.
func (c *cluster) mutate(t *testing.T, url, token string, job, planned *api.Job) (status int) {
	t.Helper()
	body, err := json.Marshal(job)
	must.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	must.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	must.NoError(t, err)
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		must.NoError(t, json.NewDecoder(response.Body).Decode(planned))
	}
	return response.StatusCode
}
