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
)

// order is everything that decides what a task's container is like. It is
// collected first; building the container from it touches nothing but looks at
// paths on the host.
type order struct {
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
func (o *order) hostDevices() hostDevices {
	return hostDevices{root: cmp.Or(o.root, "/"), allowed: o.settings.AllowedDevices}
}

// build turns the order into Docker's terms. The remarks are for the task's owner: what
// of the job has no effect, or another one than it says.
func (o *order) build() (spec docker.Spec, remarks []string, err error) {
	if containerName(o.task) == sandboxName(o.task.AllocID) {
		return spec, nil, fmt.Errorf("a task cannot be named %q: that is the name of the container with the group's network; rename the task",
			o.task.Name)
	}
	b := &blueprint{order: o, network: &network.NetworkingConfig{}, env: maps.Clone(o.task.Env), remarks: o.job.Remarks()}
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
	env, overruled := environment(b.env, o.task.DeviceEnv, o.image.Env, o.gpuAccess())
	b.config.Env = env
	return docker.Spec{
		Name:      containerName(o.task),
		Config:    &b.config,
		Host:      &b.host,
		Network:   b.network,
		MAC:       o.job.MACAddress,
		ImageName: strings.TrimPrefix(o.job.Image, "https://"),
		Attempts:  o.nameAttempts(),
	}, append(b.remarks, overruled...), nil
}

// blueprint is a container in the making. Each of its methods fills in one subject.
type blueprint struct {
	*order
	config  container.Config
	host    container.HostConfig
	network *network.NetworkingConfig
	env     map[string]string // the task's, before the pin
	remarks []string
}

func (b *blueprint) remark(format string, args ...any) {
	b.remarks = append(b.remarks, fmt.Sprintf(format, args...))
}

// nameAttempts is how often a container of the same name is made room for: the task's
// own number, or else the plugin's.
func (o *order) nameAttempts() int {
	if own := o.job.ContainerExistsAttempts; own > 0 {
		return own
	}
	return o.settings.ContainerExistsAttempts
}

func (o *order) gpuAccess() gpuAccess {
	if o.observes() {
		return gpuAccess{observer: pinObserver(o.settings.GPUObserver)}
	}
	return gpuAccess{bookings: o.bookings, way: o.injection, seesAll: o.job.Privileged || o.hostDevices().sharesGPUs()}
}

// hasGPU reports whether the task holds GPU memory.
func (o *order) hasGPU() bool { return len(o.bookings) > 0 }
