// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/config"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/label"
)

// Input is everything that decides what a task's container is like.
type Input struct {
	Task         *drivers.TaskConfig
	Job          *config.TaskConfig // its config block
	Settings     config.Settings
	Bookings     []allocator.Booking
	Image        docker.Image
	Injection    config.Injection       // how the GPUs reach the container; empty: by the NVIDIA runtime
	PlainRuntime string                 // runtime with GPUs by CDI, if the job names none
	SharedCPUs   string                 // CPUs that tasks without cores of their own share; empty: not known
	Files        []*drivers.MountConfig // hosts and resolv.conf written for a group's network
	Root         string                 // of the host's devices; empty: "/"
}

// hostDevices is where devices are looked for.
func (in *Input) hostDevices() hostDevices {
	return hostDevices{root: cmp.Or(in.Root, "/"), allowed: in.Settings.AllowedDevices}
}

// Build returns the container in Docker's terms. The remarks are for the task's owner: what of the job has no effect, or another
// one than it says. An error says which key of the job is at fault, or which setting of the operator does not allow it.
func (in *Input) Build() (spec docker.Spec, remarks []string, err error) {
	if label.ContainerName(in.Task.Name, in.Task.AllocID) == label.SandboxName(in.Task.AllocID) {
		return spec, nil, fmt.Errorf("a task cannot be named %q: that is the name of the container with the group's network; rename the task",
			in.Task.Name)
	}
	b := &builder{Input: in, network: &network.NetworkingConfig{}, env: maps.Clone(in.Task.Env), remarks: in.Job.Remarks()}
	for _, part := range []func() error{
		b.process,
		b.resources,
		b.security,
		b.namespaces,
		b.networking,
		b.ports,
		b.storage,
		b.devices,
		b.logging,
		b.labels,
	} {
		if err := part(); err != nil {
			return docker.Spec{}, nil, err
		}
	}
	if err := checkEnv(b.env); err != nil {
		return docker.Spec{}, nil, err
	}
	// Last, so that nothing before it can change what the container sees.
	env, overruled := environment(b.env, in.Task.DeviceEnv, in.Image.Env, in.gpuAccess())
	b.config.Env = env
	return docker.Spec{
		Name:      label.ContainerName(in.Task.Name, in.Task.AllocID),
		Config:    &b.config,
		Host:      &b.host,
		Network:   b.network,
		MAC:       in.Job.MACAddress,
		ImageName: strings.TrimPrefix(in.Job.Image, "https://"),
		Attempts:  in.nameAttempts(),
	}, append(b.remarks, overruled...), nil
}

// builder collects the container. Each of its methods fills in one subject.
type builder struct {
	*Input
	config  container.Config
	host    container.HostConfig
	network *network.NetworkingConfig
	env     map[string]string // the task's, before the pin
	remarks []string
}

func (b *builder) remark(format string, args ...any) {
	b.remarks = append(b.remarks, fmt.Sprintf(format, args...))
}

// nameAttempts is how often a container of the same name is made room for: the task's
// own number, or else the plugin's.
func (in *Input) nameAttempts() int {
	if own := in.Job.ContainerExistsAttempts; own > 0 {
		return own
	}
	return in.Settings.ContainerExistsAttempts
}

func (in *Input) gpuAccess() gpuAccess {
	if in.Observes() {
		return gpuAccess{observer: pinObserver(in.Settings.GPUObserver)}
	}
	return gpuAccess{bookings: in.Bookings, way: in.Injection, seesAll: in.Job.Privileged || in.hostDevices().sharesGPUs()}
}

// HasGPU reports whether the task holds GPU memory.
func (in *Input) HasGPU() bool { return len(in.Bookings) > 0 }
