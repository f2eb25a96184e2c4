// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

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

// order is everything that decides what a task's container is like. It is
// collected first; building the container from it touches nothing but looks at
// paths on the host.
type Input struct {
	task         *drivers.TaskConfig
	job          *config.TaskConfig // its config block
	settings     config.Settings
	bookings     []allocator.Booking
	image        docker.Image
	injection    config.Injection       // how the GPUs reach the container; empty: by the NVIDIA runtime
	plainRuntime string                 // of a container whose GPUs come by CDI, where the job names none
	pool         string                 // CPUs that tasks without cores of their own share; empty: not known
	files        []*drivers.MountConfig // hosts and resolv.conf written for a group's network
	root         string                 // of the host's devices; empty: "/"
}

// hostDevices is where devices are looked for.
func (in *Input) hostDevices() hostDevices {
	return hostDevices{root: cmp.Or(in.root, "/"), allowed: in.settings.AllowedDevices}
}

// build turns the order into Docker's terms. The remarks are for the task's owner: what
// of the job has no effect, or another one than it says.
func (in *Input) build() (spec docker.Spec, remarks []string, err error) {
	if label.ContainerName(in.task) == label.SandboxName(in.task.AllocID) {
		return spec, nil, fmt.Errorf("a task cannot be named %q: that is the name of the container with the group's network; rename the task",
			in.task.Name)
	}
	b := &builder{Input: in, network: &network.NetworkingConfig{}, env: maps.Clone(in.task.Env), remarks: in.job.Remarks()}
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
	env, overruled := environment(b.env, in.task.DeviceEnv, in.image.Env, in.gpuAccess())
	b.config.Env = env
	return docker.Spec{
		Name:      label.ContainerName(in.task),
		Config:    &b.config,
		Host:      &b.host,
		Network:   b.network,
		MAC:       in.job.MACAddress,
		ImageName: strings.TrimPrefix(in.job.Image, "https://"),
		Attempts:  in.nameAttempts(),
	}, append(b.remarks, overruled...), nil
}

// builder is a container in the making. Each of its methods fills in one subject.
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
	if own := in.job.ContainerExistsAttempts; own > 0 {
		return own
	}
	return in.settings.ContainerExistsAttempts
}

func (in *Input) gpuAccess() gpuAccess {
	if in.observes() {
		return gpuAccess{observer: pinObserver(in.settings.GPUObserver)}
	}
	return gpuAccess{bookings: in.bookings, way: in.injection, seesAll: in.job.Privileged || in.hostDevices().sharesGPUs()}
}

// hasGPU reports whether the task holds GPU memory.
func (in *Input) hasGPU() bool { return len(in.bookings) > 0 }
