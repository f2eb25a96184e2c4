// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"
	"golang.org/x/sys/unix"

	"nomad-gpu-mem/allocator"
)

// shapes are jobs with the forms of real jobs, for the driver docker: one file each in
// testdata/jobs. The expected result of each is checked once all are submitted.
var shapes = []struct {
	name string
	vars string // values of its variables, in HCL; $WORD is replaced
	// One of the two: whether Nomad refuses the job, or the expected result.
	refused bool
	become  func(t *testing.T, job string)
}{
	{name: "list-devices", become: func(t *testing.T, job string) {
		must.Len(t, 1, regexp.MustCompile(`(?m)^nvidia\d+$`).FindAllString(shared.finished(t, job), -1))
	}},
	{name: "fine-tune", vars: "memory = 48\nmemlock = \"$MEMLOCK\"", become: func(t *testing.T, job string) {
		for _, line := range []string{"/work\n", "size=32768k", "/scratch\n", "token none\n"} {
			must.StrContains(t, shared.finished(t, job), line)
		}
	}},
	{name: "train-all", vars: "units = 8\nmemlock = \"$MEMLOCK\"", become: func(t *testing.T, job string) {
		host, err := os.Readlink("/proc/self/ns/ipc")
		must.NoError(t, err)
		out := shared.finished(t, job)
		must.RegexMatch(t, regexp.MustCompile(`8 asked, 8 given, meet at \d+\n`), out)
		must.StrContains(t, out, host)
	}},
	{name: "named-model", become: func(t *testing.T, job string) { shared.requirePinned(t, job, bigGPU) }},
	{name: "gpu-sizes", become: testGPUSizes},
	{name: "all-visible", become: func(t *testing.T, job string) {
		env := shared.requirePinned(t, job, "")
		must.Eq(t, "0", env["CUDA_VISIBLE_DEVICES"])
		must.Eq(t, "compute,utility", env["NVIDIA_DRIVER_CAPABILITIES"])
	}},
	{name: "all-visible-by-template", become: func(t *testing.T, job string) {
		shared.requirePinned(t, job, "")
		shared.waitEvent(t, job, `NVIDIA_VISIBLE_DEVICES="all" in the task's environment was`)
	}},
	{name: "privileged", become: func(t *testing.T, job string) {
		shared.requireFailed(t, job, "a privileged container sees every GPU of the node")
	}},
	{name: "fast-network", vars: "host = \"$HOST\"\nmemlock = $MEMLOCK\nprivileged = $PRIVILEGED", become: testFastNetwork},
	{name: "any-gpu", become: func(t *testing.T, job string) { shared.requireNotPlaced(t, job, "serve") }},
	{name: "no-units", refused: true}, // a constraint without a value
	{name: "no-units", vars: `model = "NVIDIA A10"`, become: func(t *testing.T, job string) { shared.requireNotPlaced(t, job, "user") }},
	{name: "sidecar-model", become: testSidecarModel},
	{name: "two-tasks", become: func(t *testing.T, job string) {
		shared.waitRunning(t, job)
		units := map[string]int{}
		for _, held := range shared.claimsOf(t, job, allocator.Running) {
			units[held.Task] = len(held.Units)
		}
		must.Eq(t, map[string]int{"a": 2, "b": 2}, units)
	}},
	{name: "two-gpus", vars: fmt.Sprintf("gpus = [%q, %q]", bigGPU, smallGPU), become: func(t *testing.T, job string) {
		shared.requireNotPlaced(t, job, "any")
		shared.waitRunning(t, job)
		held := shared.claimsOf(t, job, allocator.Running)
		must.Len(t, 2, held)
		must.Eq(t, []string{"nvidia0", "nvidia1"}, shared.gpusInside(t, held[0].Container))
	}},
	{name: "pinned", vars: fmt.Sprintf("gpu = %q", smallGPU), become: func(t *testing.T, job string) {
		shared.requirePinned(t, job, smallGPU)
	}},
	{name: "monitor", vars: "program = \"$PROGRAM\"\nconsul = \"$CONSUL\"", become: testMonitor},
	{name: "dispatched", become: testDispatched},
	{name: "other-runtime", become: func(t *testing.T, job string) {
		shared.requireFailed(t, job, "conflicting runtime requests")
	}},
}

// Real jobs run with another driver name and no other change, and jobs that Nomad rejects
// are also rejected.
func TestJobShapes(t *testing.T) {
	var jobs []string
	t.Cleanup(func() { shared.removeAll(t, jobs) })
	for _, shape := range shapes {
		job := shared.parseShape(t, shape.name, "gpu-docker", shape.vars)
		_, _, err := shared.nomad.Jobs().Register(job, nil)
		if shape.refused {
			must.GreaterEq(t, http.StatusBadRequest, statusOf(err), must.Sprint(shape.name, err))
			continue
		}
		must.NoError(t, err, must.Sprint(shape.name))
		must.Eq(t, shape.name, *job.ID)
		jobs = append(jobs, *job.ID)
	}
	for _, shape := range shapes {
		if shape.become != nil {
			t.Run(shape.name, func(t *testing.T) { shape.become(t, shape.name) })
		}
	}
}

// parseShape reads a job for the driver docker, and changes its driver to that one.
func (c *cluster) parseShape(t *testing.T, name, driver, vars string) *api.Job {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata/jobs", name+".nomad.hcl"))
	must.NoError(t, err)
	job, err := c.nomad.Jobs().ParseHCLOpts(&api.JobsParseRequest{
		JobHCL:       strings.ReplaceAll(string(text), "attr.driver.docker", "attr.driver."+driver),
		Variables:    c.expand(t, vars),
		Canonicalize: true,
	})
	must.NoError(t, err)
	for _, group := range job.TaskGroups {
		for _, task := range group.Tasks {
			if task.Driver == "docker" {
				task.Driver = driver
			}
		}
	}
	return job
}

func (c *cluster) expand(t *testing.T, vars string) string {
	t.Helper()
	host, err := os.Hostname()
	must.NoError(t, err)
	program, err := filepath.Abs(filepath.Join("..", "bin", "nomad-gpu-mem"))
	must.NoError(t, err)
	known := map[string]string{"HOST": host, "PROGRAM": program, "CONSUL": c.vars["CONSUL_HTTP_ADDR"], "NOMAD": c.vars["NOMAD_ADDR"]}
	known["MEMLOCK"], known["PRIVILEGED"] = ownRights(t)
	return os.Expand(vars, func(name string) string { return known[name] })
}

// ownRights returns how many bytes a process can lock, and whether it can be privileged: a
// machine that is itself a container may lack rights.
func ownRights(t *testing.T) (memlock, privileged string) {
	t.Helper()
	var lockable unix.Rlimit
	must.NoError(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &lockable))
	all := true
	for right := 0; right <= unix.CAP_LAST_CAP; right++ {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(right), 0, 0, 0)
		all = all && (has == 1 || err != nil)
	}
	return fmt.Sprint(int64(lockable.Max)), fmt.Sprint(all)
}
