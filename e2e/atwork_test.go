// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"
)

// Operations on a running task work as with Nomad's own driver.
func TestTaskAtWork(t *testing.T) {
	artifacts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "brought by Nomad")
	}))
	defer artifacts.Close()
	shared.setGreeting(t, "hello")
	job := shared.parseShape(t, "at-work", "gpu-docker", fmt.Sprintf("artifact = %q", artifacts.URL+"/index.html"))
	alloc := shared.start(t, job)

	for _, test := range []struct {
		name string
		run  func(t *testing.T, alloc *api.Allocation)
	}{
		{"artifact and port", testArtifactAndPort},
		{"host volume", testHostVolume},
		{"template by signal and by script", testTemplateChanges},
		{"script check", testScriptCheck},
		{"signal", testSignal},
		{"exec", testExec},
		{"exec on a terminal", testExecTerminal},
		{"exec by the command line", testExecCommandLine},
		{"files and logs", testFilesAndLogs},
		{"statistics", testTaskStatistics},
		{"events", testEvents},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, alloc) })
	}
}

func testArtifactAndPort(t *testing.T, alloc *api.Allocation) {
	port := alloc.AllocatedResources.Shared.Ports[0]
	eventually(t, startTime, "the page is served", func() error {
		response, err := http.Get(fmt.Sprintf("http://%s:%d/", port.HostIP, port.Value))
		if err != nil {
			return err
		}
		defer response.Body.Close()
		page, err := io.ReadAll(response.Body)
		if err == nil && string(page) != "brought by Nomad\n" {
			err = fmt.Errorf("it is %q", page)
		}
		return err
	})
}

func testHostVolume(t *testing.T, _ *api.Allocation) {
	text, err := os.ReadFile(filepath.Join(shared.run, "volume", "at-work"))
	must.NoError(t, err)
	must.Eq(t, "written by web\n", string(text))
}

func testTemplateChanges(t *testing.T, alloc *api.Allocation) {
	shared.setGreeting(t, "good evening")
	shared.waitOutput(t, alloc, "changed: good evening\n")
	scripted := filepath.Join(shared.run, "nomad/alloc", alloc.ID, "alloc/data/scripted")
	eventually(t, startTime, "the script has run", func() error {
		text, err := os.ReadFile(scripted)
		if err == nil && string(text) != "good evening\n" {
			err = fmt.Errorf("it wrote %q", text)
		}
		return err
	})
}

func testScriptCheck(t *testing.T, _ *api.Allocation) {
	eventually(t, startTime, "Consul has the check", func() error {
		var checks []struct{ Type, Status, Output string }
		if err := shared.consul("/v1/health/checks/at-work", &checks); err != nil {
			return err
		}
		if len(checks) != 1 || checks[0].Status != "passing" {
			return fmt.Errorf("%+v", checks)
		}
		return nil
	})
}

func testSignal(t *testing.T, alloc *api.Allocation) {
	shared.nomadCLI(t, "alloc", "signal", "-s", "SIGUSR1", alloc.ID, "web")
	shared.waitOutput(t, alloc, "poked\n")
}

func testFilesAndLogs(t *testing.T, alloc *api.Allocation) {
	must.StrContains(t, shared.nomadCLI(t, "alloc", "fs", alloc.ID, "web/local/page/index.html"), "brought by Nomad")
	must.StrContains(t, shared.nomadCLI(t, "alloc", "fs", alloc.ID, "web/local/"), "serve.sh")
	must.StrContains(t, shared.nomadCLI(t, "alloc", "logs", alloc.ID, "web"), "poked\n")
}

func testTaskStatistics(t *testing.T, alloc *api.Allocation) {
	eventually(t, startTime, "the task has statistics", func() error {
		usage, err := shared.nomad.Allocations().Stats(alloc, nil)
		if err != nil {
			return err
		}
		task := usage.Tasks["web"]
		if task == nil || task.ResourceUsage.MemoryStats.Usage == 0 || task.ResourceUsage.CpuStats.Measured == nil {
			return fmt.Errorf("%+v", task)
		}
		return nil
	})
	must.NotEq(t, "", shared.nomadCLI(t, "alloc", "status", "-stats", alloc.ID))
}

func testEvents(t *testing.T, _ *api.Allocation) {
	// The texts of events differ between versions of Nomad; their types do not.
	for _, kind := range []string{api.TaskDownloadingArtifacts, api.TaskStarted, api.TaskSignaling, "Task hook message"} {
		shared.waitEvent(t, "at-work", kind+": ")
	}
}

// setGreeting writes the variable that the task's templates read.
func (c *cluster) setGreeting(t *testing.T, greeting string) {
	t.Helper()
	_, _, err := c.nomad.Variables().Update(&api.Variable{
		Path: "nomad/jobs/at-work", Items: api.VariableItems{"greeting": greeting},
	}, nil)
	must.NoError(t, err)
}

// waitOutput waits until the task has written the text.
func (c *cluster) waitOutput(t *testing.T, alloc *api.Allocation, text string) {
	t.Helper()
	eventually(t, startTime, fmt.Sprintf("the task writes %q", text), func() error {
		if out := c.stdout(t, alloc, "web"); !strings.Contains(out, text) {
			return fmt.Errorf("it wrote %q", out)
		}
		return nil
	})
}

// nomadCLI runs Nomad's command line against the cluster.
func (c *cluster) nomadCLI(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(os.Getenv("NOMAD"), args...)
	cmd.Env = append(os.Environ(), "NOMAD_ADDR="+c.vars["NOMAD_ADDR"])
	return output(t, cmd)
}
