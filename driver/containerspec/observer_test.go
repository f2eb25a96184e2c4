// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"
	"golang.org/x/sys/unix"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/config"
	"nomad-gpu-mem/driver/configtest"
	"nomad-gpu-mem/driver/label"
)

const (
	exporterDigest = "@sha256:5b1ae1f0f3d5c1f7a8e4b2c6d9e0f1a2b3c4d5e6f708192a3b4c5d6e7f809101"
	exporter       = "nvcr.io/nvidia/k8s/dcgm-exporter" + exporterDigest
	observing      = `gpu_observer { jobs = ["monitoring/gpu-exporter"] }`
	pinnedImage    = "gpu_observer {\n jobs = [\"monitoring/gpu-exporter\"]\n images = [\"" + exporter + "\"]\n}"
)

// observerInput is the input for a task of the job monitoring/gpu-exporter.
func observerInput(t *testing.T, hcl, config string, bookings ...allocator.Booking) *Input {
	in := newInput(t, hcl, config, bookings...)
	in.Task.Namespace, in.Task.JobID, in.Task.JobName = "monitoring", "gpu-exporter", "gpu-exporter"
	return in
}

// An observer sees all GPUs by the utilities of the driver, whatever job and image say.
func TestObserverSeesAllGPUs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, hcl, config string
		env               map[string]string
		image             []string
		capabilities      string
	}{
		{"as listed", ``, observing, nil, nil, "utility"},
		{"what the job wants", ``, observing, map[string]string{VisibleDevices: "0", driverCapabilities: "all"}, nil, "utility"},
		{"what the image wants", ``, observing, nil, []string{"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"}, "utility"},
		{
			"what the operator wants", ``, "gpu_observer {\n jobs = [\"monitoring/gpu-exporter\"]\n capabilities = [\"utility\", \"compute\"]\n}",
			nil, nil, "utility,compute",
		},
		{"the listed image", `image = "` + exporter + `"`, pinnedImage, nil, nil, "utility"},
		{"the listed image with a tag", `image = "nvcr.io/nvidia/k8s/dcgm-exporter:4.2.3` + exporterDigest + `"`, pinnedImage, nil, nil, "utility"},
		{"privileged", `privileged = true`, observing + "\nallow_privileged = true\nallow_privileged_gpu = true", nil, nil, "utility"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in := observerInput(t, "runtime = \"nvidia\"\n"+c.hcl, c.config)
			in.Task.Env, in.Image.Env = c.env, c.image
			spec := build(t, in)
			env := parseEnv(spec.Config.Env)
			must.Eq(t, "nvidia", spec.Host.Runtime)
			must.Eq(t, "all", env[VisibleDevices])
			must.Eq(t, c.capabilities, env[driverCapabilities])
			must.Eq(t, "", spec.Config.Labels[label.GPUs], must.Sprint("it holds none"))
			for _, key := range []string{"GPU_MEM_LIMIT_MIB", "GPU_MEM_UNITS", "GPU_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"} {
				must.MapNotContainsKey(t, env, key)
			}
		})
	}
}

// What a job can say of itself makes it no observer.
func TestObserverCannotBeForged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, config string
		change       func(task *drivers.TaskConfig, job *config.TaskConfig)
	}{
		{"no key of the operator's", ``, func(*drivers.TaskConfig, *config.TaskConfig) {}},
		{"same job in another namespace", observing, func(task *drivers.TaskConfig, _ *config.TaskConfig) { task.Namespace = "default" }},
		{"namespace in another case", observing, func(task *drivers.TaskConfig, _ *config.TaskConfig) { task.Namespace = "Monitoring" }},
		{"no namespace", observing, func(task *drivers.TaskConfig, _ *config.TaskConfig) {
			task.Namespace, task.JobID = "", "monitoring/gpu-exporter"
		}},
		{"namespace in the job's ID", observing, func(task *drivers.TaskConfig, _ *config.TaskConfig) {
			task.Namespace, task.JobID = "default", "monitoring/gpu-exporter"
		}},
		{"name in place of ID", observing, func(task *drivers.TaskConfig, _ *config.TaskConfig) { task.JobID = "other" }},
		{"child of the job", observing, func(task *drivers.TaskConfig, _ *config.TaskConfig) {
			task.JobID, task.ParentJobID = "gpu-exporter/dispatch-1", "gpu-exporter"
		}},
		{"environment", observing, func(task *drivers.TaskConfig, _ *config.TaskConfig) {
			task.Namespace = "default"
			task.Env = map[string]string{"NOMAD_NAMESPACE": "monitoring", "NOMAD_JOB_ID": "gpu-exporter", VisibleDevices: "all"}
		}},
		{"labels", observing, func(task *drivers.TaskConfig, job *config.TaskConfig) {
			task.Namespace = "default"
			job.Labels = map[string]string{"namespace": "monitoring", "job_id": "gpu-exporter"}
		}},
		{"glob in the job's ID", observing, func(task *drivers.TaskConfig, _ *config.TaskConfig) { task.JobID = "*" }},
		{"the image without the job", pinnedImage, func(task *drivers.TaskConfig, job *config.TaskConfig) {
			task.JobID, job.Image = "other", exporter
		}},
		{"the job without the image", pinnedImage, func(*drivers.TaskConfig, *config.TaskConfig) {}},
		{"the image's name alone", pinnedImage, func(_ *drivers.TaskConfig, job *config.TaskConfig) {
			job.Image = "nvcr.io/nvidia/k8s/dcgm-exporter:4.2.3"
		}},
		{"another digest", pinnedImage, func(_ *drivers.TaskConfig, job *config.TaskConfig) {
			job.Image = exporter[:len(exporter)-1] + "2"
		}},
		{"the digest as a tag", pinnedImage, func(_ *drivers.TaskConfig, job *config.TaskConfig) {
			job.Image = "nvcr.io/nvidia/k8s/dcgm-exporter:sha256-5b1ae1f0f3d5c1f7a8e4b2c6d9e0f1a2b3c4d5e6f708192a3b4c5d6e7f809101"
		}},
		{"the image from an archive", pinnedImage, func(_ *drivers.TaskConfig, job *config.TaskConfig) {
			job.Image, job.Load = exporter, "img.tar"
		}},
		{"the image by its ID", pinnedImage, func(_ *drivers.TaskConfig, job *config.TaskConfig) {
			job.Image = exporterDigest[len("@"):]
		}},
		{"privileged", observing + "\nallow_privileged = true", func(_ *drivers.TaskConfig, job *config.TaskConfig) { job.Privileged = true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			asks := observerInput(t, `runtime = "nvidia"`, c.config)
			c.change(asks.Task, asks.Job)
			_, _, err := asks.Build()
			must.ErrorContains(t, err, "config.")

			silent := observerInput(t, ``, c.config) // as an image that asks for all GPUs
			c.change(silent.Task, silent.Job)
			silent.Job.Privileged, silent.Job.Load = false, ""
			silent.Image.Env = []string{"NVIDIA_VISIBLE_DEVICES=all"}
			spec := build(t, silent)
			must.Eq(t, NoDevices, parseEnv(spec.Config.Env)[VisibleDevices])
			must.Eq(t, "", spec.Host.Runtime)
		})
	}
}

// A task of the job that books memory sees what it booked, and one that does not ask sees nothing.
func TestObserverJobMayHoldMemory(t *testing.T) {
	t.Parallel()
	for _, hcl := range []string{``, `runtime = "nvidia"`} {
		spec := build(t, observerInput(t, hcl, observing, slice(gpuA, 1)))
		must.Eq(t, string(gpuA), parseEnv(spec.Config.Env)[VisibleDevices])
		must.Eq(t, "compute,utility", parseEnv(spec.Config.Env)[driverCapabilities])
	}
	must.Eq(t, NoDevices, parseEnv(build(t, observerInput(t, ``, observing)).Config.Env)[VisibleDevices])
}

// Reserved variables stay the driver's, and what is overruled is reported.
func TestObserverEnvironment(t *testing.T) {
	t.Parallel()
	in := observerInput(t, `runtime = "nvidia"`, observing)
	in.Task.Env = map[string]string{
		VisibleDevices: "all", driverCapabilities: "all", "NVIDIA_MIG_CONFIG_DEVICES": "all", "DCGM_EXPORTER_INTERVAL": "30000",
	}
	spec, remarks, err := in.Build()
	must.NoError(t, err)
	env := parseEnv(spec.Config.Env)
	must.MapNotContainsKey(t, env, "NVIDIA_MIG_CONFIG_DEVICES")
	must.Eq(t, "30000", env["DCGM_EXPORTER_INTERVAL"])
	must.Eq(t, []string{
		`NVIDIA_DRIVER_CAPABILITIES="all" in the task's environment was replaced by "utility": the client's gpu_observer decides what an observer sees`,
		`NVIDIA_MIG_CONFIG_DEVICES="all" in the task's environment was removed: the client's gpu_observer decides what an observer sees`,
	}, remarks)
}

// Without compute an observer has no node of CUDA's memory.
func TestObserverNodes(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, dir := range []string{"dev", "proc/driver/nvidia/gpus/0000:01:00.0", "proc/driver/nvidia/gpus/0000:02:00.0"} {
		must.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	for node, minor := range map[string]uint32{"nvidia0": 0, "nvidia1": 1, "nvidiactl": 255, "nvidia-uvm": 7} {
		must.NoError(t, unix.Mknod(filepath.Join(root, "dev", node), unix.S_IFCHR|0o666, int(unix.Mkdev(195, minor))))
	}
	for dir, text := range map[string]string{
		"0000:01:00.0": "GPU UUID: GPU-b\nDevice Minor: 1\n", "0000:02:00.0": "GPU UUID: GPU-a\nDevice Minor: 0\n",
	} {
		must.NoError(t, os.WriteFile(filepath.Join(root, "proc/driver/nvidia/gpus", dir, "information"), []byte(text), 0o600))
	}
	host := hostDevices{root: root}
	paths := func(compute bool) (all []string) {
		for _, node := range host.allGPUNodes(compute) {
			all = append(all, node.PathOnHost)
		}
		return all
	}
	must.Eq(t, []string{"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"}, paths(false))
	must.Eq(t, []string{"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"}, paths(true))
	must.SliceEmpty(t, hostDevices{root: t.TempDir()}.allGPUNodes(true))
}

func TestObserverConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ hcl, want string }{
		{`jobs = ["gpu-exporter"]`, `gpu_observer.jobs has "gpu-exporter"`},
		{`jobs = ["monitoring/"]`, `gpu_observer.jobs has "monitoring/"`},
		{`jobs = ["/gpu-exporter"]`, `gpu_observer.jobs has "/gpu-exporter"`},
		{`jobs = ["*/gpu-exporter"]`, `gpu_observer.jobs has "*/gpu-exporter"`},
		{`jobs = ["monitoring/gpu-*"]`, `gpu_observer.jobs has "monitoring/gpu-*"`},
		{`images = ["` + exporter + `"]`, `gpu_observer.images without gpu_observer.jobs`},
		{"jobs = [\"a/b\"]\nimages = [\"dcgm-exporter:4.2.3\"]", `gpu_observer.images has "dcgm-exporter:4.2.3"`},
		{"jobs = [\"a/b\"]\nimages = [\"dcgm-exporter:*@sha256:\"]", `gpu_observer.images has "dcgm-exporter:*@sha256:"`},
		{"jobs = [\"a/b\"]\ncapabilities = [\"all\"]", `gpu_observer.capabilities has "all"`},
		{"jobs = [\"a/b\"]\ncapabilities = [\"utility,compute\"]", `gpu_observer.capabilities has "utility,compute"`},
	} {
		_, err := configtest.Plugin(t, "gpu_observer {\n"+c.hcl+"\n}").Settings()
		must.ErrorContains(t, err, c.want, must.Sprint(c.hcl))
	}
	s, err := configtest.Plugin(t, "gpu_observer {\n jobs = [\"a/b/c d\"]\n}").Settings()
	must.NoError(t, err, must.Sprint("a job's ID may have a slash"))
	must.Eq(t, []string{"utility"}, s.GPUObserver.Capabilities)
}
