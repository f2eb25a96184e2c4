// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package attack

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/plugins/drivers"
)

const (
	observers  = `gpu_observer { jobs = ["monitoring/gpu-exporter"] }`
	oneImage   = "gpu_observer {\n jobs = [\"monitoring/gpu-exporter\"]\n images = [\"tenant/app@sha256:{digest}\"]\n}"
	observedBy = "GPUs that the container reaches, its environment, its claims"
)

// anObserver is a job that the operator has listed.
func anObserver(task *drivers.TaskConfig) {
	task.Namespace, task.JobID, task.JobName = "monitoring", "gpu-exporter", "gpu-exporter"
}

// rowsOfObservers attack observers, the jobs that the operator lets see all GPUs: another
// job must not pass for one, and an observer must not get more than its setting allows.
func rowsOfObservers() (all []attack) {
	const asks = `runtime = "nvidia"`
	for _, c := range []struct {
		name, tries, config string
		env                 map[string]string
		as                  func(task *drivers.TaskConfig)
	}{
		{"runtime", "by naming the runtime", asks, nil, nil},
		{"default-runtime", "by the daemon's default runtime", ``, map[string]string{"NVIDIA_VISIBLE_DEVICES": "all"}, nil},
		{"environment", "by the environment of one", asks, map[string]string{"NOMAD_NAMESPACE": "monitoring", "NOMAD_JOB_ID": "gpu-exporter"}, nil},
		{"labels", "by the labels of one", asks + "\nlabels {\n \"nomad-gpu-mem-namespace\" = \"monitoring\"\n job_id = \"gpu-exporter\"\n}", nil, nil},
		{"same-id", "by the job ID of one in its own namespace", asks, nil, func(task *drivers.TaskConfig) { task.JobID = "gpu-exporter" }},
		{"slash-in-id", "by a job ID that begins with the namespace of one", asks, nil, func(task *drivers.TaskConfig) {
			task.JobID = "monitoring/gpu-exporter"
		}},
		{"child-id", "as a dispatched child", asks, nil, func(task *drivers.TaskConfig) {
			task.Namespace, task.JobID, task.ParentJobID = "monitoring", "gpu-exporter/dispatch-1", "gpu-exporter"
		}},
		{"glob-id", "by a job ID that is a glob", asks, nil, func(task *drivers.TaskConfig) { task.Namespace, task.JobID = "*", "*" }},
	} {
		all = append(all, attack{
			name: "observer-" + c.name, tries: "to see all GPUs as an observer " + c.tries, looks: observedBy, operator: observers,
			job: job{config: c.config, env: c.env, as: c.as, script: `true`}, look: both(sees(), unasked, noClaimBeyond),
		})
	}
	return append(all, rowsOfListedObservers(asks)...)
}

// rowsOfListedObservers are jobs that may observe, and want more.
func rowsOfListedObservers(asks string) (all []attack) {
	pinned := strings.ReplaceAll(oneImage, "{digest}", strings.Repeat("5b1ae1f0", 8))
	for _, c := range []struct {
		name, tries, config, operator string
		env                           map[string]string
		look                          look
	}{
		{
			"compute", "an observer tries to compute, and to have the fabric and MIG's rights, by its environment", asks, observers,
			map[string]string{
				"NVIDIA_DRIVER_CAPABILITIES": "all", "NVIDIA_NVSWITCH": "enabled", "NVIDIA_MIG_CONFIG_DEVICES": "all", "NVIDIA_IMEX_CHANNELS": "all",
			},
			both(sees(0, 1), utilityOnly, noClaimBeyond),
		},
		{
			"privileged", "an observer tries to be privileged", asks + "\nprivileged = true", observers + "\nallow_privileged = true", nil,
			both(sees(), noClaimBeyond),
		},
		{
			"other-image", "an observer runs another image than the operator listed", asks, pinned, nil,
			both(sees(), noClaimBeyond),
		},
		{
			"image-from-archive", "an observer names the listed image and has it loaded from its own archive",
			asks + "\nimage = \"tenant/app@sha256:" + strings.Repeat("5b1ae1f0", 8) + "\"\nload = \"img.tar\"", pinned, nil,
			both(sees(), noClaimBeyond),
		},
		{
			"no-runtime", "a second task of an observer's job hopes to see GPUs without asking", ``, observers,
			map[string]string{"NVIDIA_VISIBLE_DEVICES": "all"}, both(sees(), unasked, noClaimBeyond),
		},
	} {
		all = append(all, attack{
			name: "observer-" + c.name, tries: c.tries, looks: observedBy, operator: c.operator,
			job: job{config: c.config, env: c.env, as: anObserver, script: `true`}, look: c.look,
		})
	}
	return all
}

// utilityOnly checks that a container has all GPUs with the utilities of NVIDIA's driver, and requests
// nothing else.
func utilityOnly(_ *scene, in *intruder) error {
	if !in.runs() {
		return fmt.Errorf("the observer was not started: %w", in.refused)
	}
	env := in.container.Config.Env
	for _, want := range []string{"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=utility"} {
		if !slices.Contains(env, want) {
			return fmt.Errorf("the observer has not %s in %q", want, env)
		}
	}
	for _, entry := range env {
		if entry != "NVIDIA_VISIBLE_DEVICES=all" && slices.Contains(runtimeWords, entry) {
			return fmt.Errorf("the observer has %s from its job or image", entry)
		}
	}
	return nil
}
