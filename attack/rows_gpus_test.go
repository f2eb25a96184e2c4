// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package attack

import (
	"fmt"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/image"
)

// greedy are variables by which NVIDIA's runtime would give a container more than its
// GPU.
func greedy() []struct {
	name string
	env  map[string]string
} {
	return []struct {
		name string
		env  map[string]string
	}{
		{"all", map[string]string{"NVIDIA_VISIBLE_DEVICES": "all"}},
		{"all-comma", map[string]string{"NVIDIA_VISIBLE_DEVICES": "all,"}},
		{"empty", map[string]string{"NVIDIA_VISIBLE_DEVICES": ""}},
		{"index", map[string]string{"NVIDIA_VISIBLE_DEVICES": "1"}},
		{"uuid", map[string]string{"NVIDIA_VISIBLE_DEVICES": "{gpu1}"}},
		{"cdi", map[string]string{"NVIDIA_VISIBLE_DEVICES": "nvidia.com/gpu=all"}},
		{"equals-in-name", map[string]string{"NVIDIA_VISIBLE_DEVICES=all": ""}},
		{"equals-and-comma-in-name", map[string]string{"NVIDIA_VISIBLE_DEVICES=all,": "x"}},
		{"equals-uuid-in-name", map[string]string{"NVIDIA_VISIBLE_DEVICES={gpu1}": "", "NVIDIA_VISIBLE_DEVICES": "void"}},
		{"newline-in-name", map[string]string{"A=1\nNVIDIA_VISIBLE_DEVICES": "all"}},
		{"newline-in-value", map[string]string{"A": "1\nNVIDIA_VISIBLE_DEVICES=all"}},
		{"blank-before", map[string]string{" NVIDIA_VISIBLE_DEVICES": "all"}},
		{"blank-behind", map[string]string{"NVIDIA_VISIBLE_DEVICES ": "all"}},
		{"lower-case", map[string]string{"nvidia_visible_devices": "all"}},
		{"no-name", map[string]string{"": "NVIDIA_VISIBLE_DEVICES=all"}},
		{"bare", map[string]string{"NVIDIA_VISIBLE_DEVICES=": "all"}},
		{"swarm", map[string]string{"DOCKER_RESOURCE_GPU": "all", "DOCKER_RESOURCE_NVIDIA": "{gpu1}"}},
		{"swarm-equals", map[string]string{"DOCKER_RESOURCE_GPU=all": ""}},
		{"mig", map[string]string{"NVIDIA_MIG_CONFIG_DEVICES": "all", "NVIDIA_MIG_MONITOR_DEVICES": "all"}},
		{"imex", map[string]string{"NVIDIA_IMEX_CHANNELS": "all"}},
		{"nvswitch", map[string]string{"NVIDIA_NVSWITCH": "enabled"}},
		{"mofed", map[string]string{"NVIDIA_MOFED": "enabled"}},
		{"gds", map[string]string{"NVIDIA_GDS": "enabled"}},
		{"gdrcopy", map[string]string{"NVIDIA_GDRCOPY": "enabled"}},
		{"mofed-equals", map[string]string{"NVIDIA_MOFED=enabled": ""}},
		{"limits", map[string]string{"NVIDIA_GPU_MEMORY_LIMITS": "all=1", "NVIDIA_GPU_MEMORY_REQUESTS": "all=1", "GPU_MEM_LIMIT_MIB": "999999"}},
		{"booking", map[string]string{"GPU_MEM_RESERVATION_ABCDEF012345": `{"gpu":"{gpu1}","unit_mib":1024,"of":16,"total_mib":16384,"units":"0-3"}`}},
	}
}

// runtimeWords are variables that must not reach NVIDIA's runtime from a job.
var runtimeWords = []string{
	"NVIDIA_MOFED=enabled", "NVIDIA_GDS=enabled", "NVIDIA_GDRCOPY=enabled", "NVIDIA_NVSWITCH=enabled", "NVIDIA_IMEX_CHANNELS=all",
	"NVIDIA_MIG_CONFIG_DEVICES=all", "NVIDIA_MIG_MONITOR_DEVICES=all", "NVIDIA_GPU_MEMORY_LIMITS=all=1", "GPU_MEM_LIMIT_MIB=999999", "DOCKER_RESOURCE_GPU=all",
	"NVIDIA_VISIBLE_DEVICES=all",
}

// unasked checks that the container has no variable that requests more from the runtime,
// whatever devices this host has.
func unasked(_ *scene, in *intruder) error {
	if !in.runs() {
		return nil
	}
	for _, entry := range in.container.Config.Env {
		if slices.Contains(runtimeWords, entry) {
			return fmt.Errorf("the container has %s from its job or image", entry)
		}
	}
	return nil
}

func rowsOfGPUs() (all []attack) {
	const looks = "GPUs that the container reaches, its environment"
	for _, slice := range []bool{false, true} {
		with, want := "", []int(nil)
		if slice {
			with, want = "-with-slice", []int{0}
		}
		for _, c := range greedy() {
			all = append(all, attack{
				name: "env-" + c.name + with, tries: fmt.Sprintf("to see other GPUs by its environment %.60q", fmt.Sprint(c.env)), looks: looks,
				slow: !slice,
				job:  job{env: c.env, script: `true`, slice: slice}, look: both(sees(want...), unasked, noClaimBeyond),
			})
		}
		all = append(all, imageRows(with, want, slice)...)
		for _, c := range []struct{ name, config string }{
			{"mount-request", `volumes = ["local:/var/run/nvidia-container-devices/all"]`},
			{"mount-request-null", `volumes = ["/dev/null:/var/run/nvidia-container-devices/all"]`},
			{"mount-request-uuid", `volumes = ["local:/run/nvidia-container-devices/{gpu1}"]`},
			{"mount-request-spelled", `volumes = ["local:/var//run/../run/./nvidia-container-devices/all"]`},
			{"mount-request-cdi", `volumes = ["local:/var/run/nvidia-container-devices/cdi/nvidia.com/gpu/all"]`},
			{"mount-request-imex", `volumes = ["local:/var/run/nvidia-container-devices/imex/all"]`},
			{"mount-request-parent", `volumes = ["local:/var/run/nvidia-container-devices"]`},
			{"mount-request-tmpfs", "mount {\n type = \"tmpfs\"\n target = \"/var/run/nvidia-container-devices/all\"\n}"},
			{"mount-request-bind", "mount {\n type = \"bind\"\n source = \"local\"\n target = \"/var/run/nvidia-container-devices/all\"\n}"},
			{"annotation", `labels { "cdi.k8s.io/x" = "nvidia.com/gpu=all" }`},
			{"runtime-nvidia", `runtime = "nvidia"`},
			{"runtime-runc", `runtime = "runc"`},
			{"runtime-unknown", `runtime = "io.containerd.runc.v2"`},
		} {
			all = append(all, attack{
				name: c.name + with, tries: "to see other GPUs by " + strings.ReplaceAll(c.config, "\n", ""), looks: looks,
				slow: slice,
				job:  job{config: c.config, script: `true`, slice: slice}, look: both(sees(want...), unasked),
			})
		}
	}
	return all
}

// imageRows attack by the settings of an image.
func imageRows(with string, want []int, slice bool) (all []attack) {
	env := []string{}
	for _, c := range greedy() {
		for key, value := range c.env {
			if key != "" && !strings.ContainsAny(key+value, "{\n= ") {
				env = append(env, fmt.Sprintf("ENV %s=%s", key, value))
			}
		}
	}
	slices.Sort(env)
	for _, c := range []struct {
		name, tries string
		changes     []string
	}{
		{"image-env", "its image's environment", append(env, "ENV NVIDIA_VISIBLE_DEVICES=all")},
		{"image-volume", "a VOLUME of its image", []string{"VOLUME /var/run/nvidia-container-devices/all"}},
		{"image-volume-run", "a VOLUME of its image", []string{"VOLUME /run/nvidia-container-devices/all"}},
		{"image-cuda", "an image of old CUDA", []string{"ENV CUDA_VERSION=10.0", "ENV NVIDIA_REQUIRE_CUDA=cuda>=10.0"}},
		{"image-labels", "labels of its image", []string{`LABEL cdi.k8s.io/x=nvidia.com/gpu=all`, `LABEL com.nvidia.volumes.needed=nvidia_driver`}},
	} {
		all = append(all, attack{
			name: c.name + with, tries: "to see other GPUs by " + c.tries, looks: "GPUs that the container reaches, its environment",
			slow: !slice,
			job:  job{config: `image = "{image}"`, script: `true`, slice: slice}, before: ownImage(c.changes...), look: both(sees(want...), unasked),
		})
	}
	return all
}

// ownImage puts an image of the attacker's on the host.
func ownImage(changes ...string) func(s *scene, in *intruder) error {
	return func(s *scene, in *intruder) error {
		for i := range changes {
			changes[i] = s.expand(in, changes[i])
		}
		in.t.Cleanup(func() { _, _ = s.stage.api.ImageRemove(s.stage.ctx, intruderImage, image.RemoveOptions{Force: true}) })
		return s.stage.commit(intruderImage, changes...)
	}
}

// noClaimBeyond checks that the attacker holds exactly the booked units.
func noClaimBeyond(s *scene, in *intruder) error {
	held, err := s.claimOf(in.alloc.id)
	switch {
	case err != nil:
		return err
	case !in.job.slice && held != "":
		return fmt.Errorf("a task without a slice holds %s", held)
	case in.job.slice && in.runs() && !strings.HasPrefix(held, fmt.Sprintf("units 4-5 of %s, running", s.stage.gpus[0].id)):
		return fmt.Errorf("the task holds %q", held)
	case strings.Contains(held, ";"):
		return fmt.Errorf("the task holds more than its slice: %s", held)
	}
	return nil
}
