// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package soak

import (
	"strings"

	"github.com/hashicorp/nomad/api"

	"nomad-gpu-mem/e2e/soak/model"
)

// hostileJob is a job of an author who wants more than a slice. It may be refused or run: it
// must neither break an invariant nor leak anything.
type hostileJob struct {
	name   string
	script string // what its task does; by default it waits
	change func(group *api.TaskGroup, task *api.Task)
}

// set is a change of one key of the task's config.
func set(key string, value any) func(*api.TaskGroup, *api.Task) {
	return func(_ *api.TaskGroup, task *api.Task) { task.SetConfig(key, value) }
}

const stranger = "11111111-2222-3333-4444-555555555555" // an allocation that does not exist

var hostileJobs = []hostileJob{
	{"huge group name", "", func(group *api.TaskGroup, _ *api.Task) { group.Name = ptr(strings.Repeat("<", 20_000)) }},
	{"forged labels", "", set("labels", []map[string]string{{
		"nomad-gpu-mem.alloc_id": stranger, "nomad-gpu-mem.task_id": stranger + "/app/12345678",
		"com.hashicorp.nomad.alloc_id": stranger,
	}})},
	{"forged GPUs", "", func(_ *api.TaskGroup, task *api.Task) {
		task.Env = map[string]string{"NVIDIA_VISIBLE_DEVICES": "all", "GPU_MEM_UNITS": "99", "NVIDIA_MIG_CONFIG_DEVICES": "all"}
		task.SetConfig("image", "gpu-mem/cuda:1")
	}},
	{"task named like a pause container", "", func(_ *api.TaskGroup, task *api.Task) { task.Name = "gpu-docker_sandbox" }},
	{"mounts the allocation", "mv /a/alloc /a/x; mkdir -p /a/alloc/logs; echo over; sleep 5", set("volumes", []string{"..:/a"})},
	{"replaces its directory", "mv /a/app /a/gone && ln -s /nowhere /a/app; exit 1", set("volumes", []string{"..:/a"})},
	{"pipe in its directory", "rm -f /t/.gpu-docker-logs.json; mkfifo /t/.gpu-docker-logs.json; echo over; exit 1",
		set("volumes", []string{".:/t"})},
	{"pipe as seccomp profile", "", set("security_opt", []string{"seccomp=local/p.json"})},
	{"writable cgroups", "", func(_ *api.TaskGroup, task *api.Task) {
		task.SetConfig("security_opt", []string{"writable-cgroups=true"})
		task.SetConfig("cgroupns", "host")
	}},
	{"host's kernel log", "", set("devices", []map[string]any{{"host_path": "/dev/kmsg"}})},
	{"privileged", "", set("privileged", true)},
	{"another container's network", "", set("network_mode", "container:"+stranger)},
	{"never killed first", "", set("oom_score_adj", -1000)},
	{"archive of others' images", "", set("load", "../../../../etc/passwd")},
}

// job returns the hostile job under a name, with a slice of one unit.
func (h hostileJob) job(name string) *api.Job {
	f := formOf("service")
	if h.script != "" {
		f.script = h.script
	}
	job := f.job(name, model.Request{Units: []uint64{1}, Count: 1}, 0)
	group := job.TaskGroups[0]
	h.change(group, group.Tasks[0])
	return job
}
