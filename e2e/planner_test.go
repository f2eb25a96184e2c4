// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/nvml/fakenvml"
	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/planner/live"
)

const plannerNodes = 3

// plannedJob has a group of several instances with memory from a profile, and
// a task with two asks.
const plannedJob = `
variable "replicas" { type = number }
job "planned" {
  group "serve" {
    count = var.replicas
    task "model" {
      driver       = "gpu-docker"
      kill_timeout = "2s"
      meta {
        gpu_mem_profile = "llama"
        gpu_mem_batch   = "8"
      }
      config {
        image   = "gpu-mem/busybox:1"
        command = "sleep"
        args    = ["infinity"]
      }
      resources {
        cpu    = 20
        memory = 32
        device "nvidia/gpu-mem" {}
      }
    }
  }
  group "train" {
    task "main" {
      driver       = "gpu-docker"
      kill_timeout = "2s"
      config {
        image   = "gpu-mem/busybox:1"
        command = "sleep"
        args    = ["infinity"]
      }
      resources {
        cpu    = 20
        memory = 32
        device "nvidia/gpu-mem" { count = 3 }
        device "nvidia/gpu-mem" { count = 4 }
      }
    }
  }
}`

// sixGPUs are two GPUs of different sizes for each of three nodes.
func sixGPUs() fakenvml.State {
	var s fakenvml.State
	for number := range 2 * plannerNodes {
		s.GPUs = append(s.GPUs, fakenvml.NewGPU(0x10+number, "NVIDIA A10", uint64(8+number)*1024))
	}
	return s
}

// On several nodes, run puts tasks where plan said. If the job is run again, or planned
// again with fewer nodes, its tasks keep running in their containers.
func TestPlanner(t *testing.T) {
	c, err := startCluster(sixGPUs(), fmt.Sprintf("GPU_MEM_NODES=%d", plannerNodes))
	if c != nil {
		t.Cleanup(func() { must.NoError(t, c.down()) })
	}
	must.NoError(t, err)
	c.waitForGPUs(t, 2*plannerNodes)
	c.cli(t, "profile", "set", "llama", "--base", "1GiB", "--per", "batch=120.5MiB")

	t.Run("as planned", func(t *testing.T) { testAsPlanned(t, c) })
	t.Run("run again", func(t *testing.T) { testRunAgain(t, c) })
	t.Run("replan", func(t *testing.T) { testReplan(t, c) })
	t.Run("whole GPU", func(t *testing.T) { testWholeGPU(t, c) })
	t.Run("replan what fitted nowhere", func(t *testing.T) { testReplanBlocked(t, c) })
	t.Run("nowhere", func(t *testing.T) { testNowhere(t, c) })
	t.Run("webhook", func(t *testing.T) { testWebhook(t, c) })
	t.Run("scaled", func(t *testing.T) { testScaled(t, c) })
	t.Run("newer blocks", func(t *testing.T) { testNewerBlocks(t, c) })
	t.Run("as a Nomad job", func(t *testing.T) { testPlannerJob(t, c) })
}

// waitForGPUs waits until Nomad knows this number of GPUs.
func (c *cluster) waitForGPUs(t *testing.T, want int) {
	t.Helper()
	eventually(t, startTime, "Nomad knows all GPUs", func() error {
		nodes, _, err := c.nomad.Nodes().List(&api.QueryOptions{Params: map[string]string{"resources": "true"}})
		if err != nil {
			return err
		}
		found := 0
		for _, n := range nodes {
			for _, d := range n.NodeResources.Devices {
				if d.Type == "gpu-mem" {
					found++
				}
			}
		}
		if found != want {
			return fmt.Errorf("it knows %d of %d", found, want)
		}
		return nil
	})
}

func (c *cluster) plannedFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(c.run, "planned.nomad.hcl")
	must.NoError(t, os.WriteFile(path, []byte(plannedJob), 0o600))
	return path
}

func testAsPlanned(t *testing.T, c *cluster) {
	file := c.plannedFile(t)
	var plan planner.Plan
	must.NoError(t, json.Unmarshal([]byte(c.cli(t, "plan", "--json", "--var=replicas=3", file)), &plan))
	must.Eq(t, 0, plan.Missing())
	report := c.runPlanned(t, "--var=replicas=3", file)
	must.Eq(t, plan.Groups, report.Plan.Groups)
	must.Len(t, 4, report.Outcomes)

	var want, got []string
	for _, group := range plan.Groups {
		for _, place := range group.Places {
			for _, s := range place.Slices {
				want = append(want, fmt.Sprintf("%s on %s of %s: %d", s.Task, s.GPU, place.Node, s.Units))
			}
		}
	}
	for _, held := range c.waitHeld(t, "planned", 5) {
		got = append(got, fmt.Sprintf("%s on %s of %s: %d", held.Task, held.gpu, held.Node, len(held.Units)))
	}
	slices.Sort(want)
	slices.Sort(got)
	must.Eq(t, want, got)
}

// runPlanned submits a job by `run`, which must report that Nomad followed the plan.
func (c *cluster) runPlanned(t *testing.T, args ...string) live.Report {
	t.Helper()
	var report live.Report
	must.NoError(t, json.Unmarshal([]byte(c.cli(t, append([]string{"run", "--json"}, args...)...)), &report))
	must.True(t, report.AsPlanned())
	return report
}

// waitHeld returns the claims of a job once this number of them is running.
func (c *cluster) waitHeld(t *testing.T, job string, count int) []heldSlice {
	t.Helper()
	var mine []heldSlice
	eventually(t, startTime, fmt.Sprintf("job %s has %d running claims", job, count), func() error {
		mine = slices.DeleteFunc(c.claims(t), func(held heldSlice) bool {
			return held.Job != job || held.State != allocator.Running
		})
		if len(mine) != count {
			return fmt.Errorf("%d run", len(mine))
		}
		return nil
	})
	return mine
}

// containersOf are the containers of a job, sorted.
func containersOf(held []heldSlice) []string {
	var ids []string
	for _, h := range held {
		ids = append(ids, h.Container)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func testRunAgain(t *testing.T, c *cluster) {
	before := containersOf(c.waitHeld(t, "planned", 5))
	must.Len(t, 4, before)
	report := c.runPlanned(t, "--var=replicas=3", "--policy=spread", "--pin=hard", c.plannedFile(t))
	must.SliceEmpty(t, report.Outcomes)
	must.Eq(t, before, containersOf(c.waitHeld(t, "planned", 5)))

	report = c.runPlanned(t, "--var=replicas=4", c.plannedFile(t))
	must.Len(t, 1, report.Outcomes)
	must.SliceContainsAll(t, containersOf(c.waitHeld(t, "planned", 6)), append(slices.Clone(before), containersOf(c.newest(t))...))
}

// newest returns the claims of the newest allocation.
func (c *cluster) newest(t *testing.T) []heldSlice {
	t.Helper()
	alloc, err := c.latest("planned")
	must.NoError(t, err)
	return slices.DeleteFunc(c.claims(t), func(held heldSlice) bool { return held.Alloc != alloc.ID })
}

func testReplan(t *testing.T, c *cluster) {
	before := containersOf(c.waitHeld(t, "planned", 6))
	must.StrContains(t, c.cli(t, "replan", "--threshold=1"), "needs no new pins")

	nodes, _, err := c.nomad.Nodes().List(nil)
	must.NoError(t, err)
	_, err = c.nomad.Nodes().ToggleEligibility(nodes[0].ID, false, nil)
	must.NoError(t, err)
	out := c.cli(t, "replan", fmt.Sprintf("--threshold=%d", plannerNodes))
	must.StrContains(t, out, "2 of 3 nodes")
	job, _, err := c.nomad.Jobs().Info("planned", nil)
	must.NoError(t, err)
	deployed := *job.Version
	must.Greater(t, uint64(0), deployed)
	must.Eq(t, before, containersOf(c.waitHeld(t, "planned", 6)))
	_, err = c.nomad.Nodes().ToggleEligibility(nodes[0].ID, true, nil)
	must.NoError(t, err)
	c.remove(t, "planned")
}

func testWholeGPU(t *testing.T, c *cluster) {
	c.start(t, gpuJob("neighbour", 1))
	path := filepath.Join(c.run, "whole.nomad.hcl")
	text := strings.Replace(plannedJob, "gpu_mem_profile = \"llama\"", "gpu_mem = \"whole\"", 1)
	text = strings.Replace(text, `job "planned"`, `job "whole"`, 1)
	must.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	t.Cleanup(func() { c.remove(t, "whole") })
	report := c.runPlanned(t, "--var=replicas=1", path)
	must.Eq(t, 0, report.Plan.Missing())
	units := map[allocator.GPUID]int{}
	for _, gpu := range c.snapshot(t).GPUs {
		units[gpu.ID] = gpu.State.Units
	}
	for _, held := range c.waitHeld(t, "whole", 3) {
		if held.Group == "serve" {
			must.Len(t, units[held.gpu], held.Units)
		}
	}
}

// plan and run report an instance that fits nowhere, with its own exit code.
func testNowhere(t *testing.T, c *cluster) {
	file := c.plannedFile(t)
	code, out := c.exit(t, "plan", "--var=replicas=99", file)
	must.Eq(t, 6, code)
	must.StrContains(t, out, "fit nowhere")
	must.StrContains(t, out, "short")
	code, out = c.exit(t, "plan", file)
	must.Eq(t, 1, code)
	must.StrContains(t, out, "replicas")
}

// exit runs the operator's command line and returns its exit code and all output.
func (c *cluster) exit(t *testing.T, args ...string) (int, string) {
	t.Helper()
	out, err := c.command(args...).CombinedOutput()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return failed.ExitCode(), string(out)
	}
	must.NoError(t, err)
	return 0, string(out)
}

func (c *cluster) command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join("..", "bin", "nomad-gpu-mem"), args...)
	cmd.Env = os.Environ()
	for key, value := range c.vars {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	return cmd
}

// Nomad places a job from the webhook where the webhook planned it.
func testWebhook(t *testing.T, c *cluster) {
	address := fmt.Sprintf("127.0.0.1:%d", freePorts(t, 1)[0])
	service := c.command("webhook", "--listen", address)
	var log bytes.Buffer
	service.Stderr = &log
	must.NoError(t, service.Start())
	t.Cleanup(func() {
		must.NoError(t, service.Process.Signal(syscall.SIGTERM))
		must.NoError(t, service.Wait(), must.Sprint(log.String()))
	})
	eventually(t, 20*time.Second, "the webhook answers", func() error {
		response, err := http.Get("http://" + address + "/healthz")
		if err != nil {
			return err
		}
		return response.Body.Close()
	})
	body, err := json.Marshal(gpuJob("hooked", 3))
	must.NoError(t, err)
	response, err := http.Post("http://"+address+"/v1/mutate", "application/json", bytes.NewReader(body))
	must.NoError(t, err)
	defer response.Body.Close()
	must.Eq(t, http.StatusOK, response.StatusCode)
	var job api.Job
	must.NoError(t, json.NewDecoder(response.Body).Decode(&job))
	must.Eq(t, "shortlist", job.TaskGroups[0].Meta[planner.MetaPlanned])

	alloc := c.start(t, &job)
	must.Eq(t, job.TaskGroups[0].Affinities[0].RTarget, alloc.NodeID)
	held := c.claimsOf(t, "hooked", allocator.Running)
	must.Eq(t, job.TaskGroups[0].Tasks[0].Resources.Devices[0].Affinities[0].RTarget, string(held[0].gpu))
}
