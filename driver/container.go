package driver

import (
	"maps"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/docker"
)

// order is everything that decides what a task's container is like. It is
// collected first; building the container from it touches nothing but looks at
// paths on the host.
type order struct {
	task     *drivers.TaskConfig
	job      *TaskConfig // its config block
	settings settings
	bookings []allocator.Booking
	image    docker.Image
	files    []*drivers.MountConfig // hosts and resolv.conf written for a group's network
}

// build turns the order into Docker's terms. The remarks are for the task's owner.
func (o *order) build() (spec docker.Spec, remarks []string, err error) {
	b := &blueprint{order: o, network: &network.NetworkingConfig{}, env: maps.Clone(o.task.Env)}
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
	} {
		if err := part(); err != nil {
			return docker.Spec{}, nil, err
		}
	}
	b.config.Labels = labels(o.task, o.job.Labels, o.settings.ExtraLabels)
	if o.hasGPU() {
		b.config.Labels[labelGPUs] = joinGPUs(o.bookings)
	}
	// Last, so that nothing before it can change what the container sees.
	b.config.Env, remarks = environment(b.env, o.task.DeviceEnv, o.image.Env, o.bookings, o.job.Privileged)
	spec = docker.Spec{Name: containerName(o.task), Config: &b.config, Host: &b.host, Network: b.network, MAC: o.job.MACAddress}
	return spec, remarks, nil
}

// blueprint is a container in the making. Each of its methods fills in one subject.
type blueprint struct {
	*order
	config  container.Config
	host    container.HostConfig
	network *network.NetworkingConfig
	env     map[string]string // the task's, before the pin
}

// hasGPU reports whether the task holds GPU memory.
func (o *order) hasGPU() bool { return len(o.bookings) > 0 }
