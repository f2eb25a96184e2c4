// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package config

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/driver/docker"
)

// GPUObserver names the jobs that may see all GPUs of a node and hold no memory of them,
// such as an exporter of metrics.
//
// A job is identified by what Nomad's servers say of it, and not by anything in its
// environment. Its image alone proves nothing: the author of a job chooses what runs in the
// image. So images can only narrow jobs.
type GPUObserver struct {
	Jobs         []string `codec:"jobs"`         // NAMESPACE/JOB
	Images       []string `codec:"images"`       // NAME@DIGEST; none: any image
	Capabilities []string `codec:"capabilities"` // of NVIDIA's driver
}

// ComputeCapability is the capability by which a container can run programs on a GPU.
const ComputeCapability = "compute"

// driverCapabilityNames are those of NVIDIA's container runtime, but for "all".
var driverCapabilityNames = []string{"compat32", ComputeCapability, "display", "graphics", "ngx", "utility", "video"}

// namespaceAndJob is an entry of jobs. A namespace has no slash in its name; the ID of a
// job may have one. There are no globs: "*" would be an ID like any other to Nomad.
var namespaceAndJob = regexp.MustCompile(`^[a-zA-Z0-9-]{1,128}/[^*\x00-\x1f]+$`)

func (g GPUObserver) validate() error {
	for _, entry := range g.Jobs {
		if !namespaceAndJob.MatchString(entry) {
			return fmt.Errorf(`gpu_observer.jobs has %q: write NAMESPACE/JOB, such as "default/gpu-exporter"; globs are not supported`, entry)
		}
	}
	for _, image := range g.Images {
		if docker.ByDigest(image) == "" {
			return fmt.Errorf(`gpu_observer.images has %q: write an image with its digest, such as "registry/name@sha256:..."`, image)
		}
	}
	if len(g.Images) > 0 && len(g.Jobs) == 0 {
		return fmt.Errorf("gpu_observer.images without gpu_observer.jobs allows nothing: name the jobs that may use the images")
	}
	for _, name := range g.Capabilities {
		if !slices.Contains(driverCapabilityNames, name) {
			return fmt.Errorf("gpu_observer.capabilities has %q: the choice is among %q", name, driverCapabilityNames)
		}
	}
	return nil
}

// Lists reports whether the operator allows the task's job to observe. Namespace and job
// come from Nomad's servers; a dispatched or periodic job has an ID of its own.
func (g GPUObserver) Lists(task *drivers.TaskConfig) bool {
	return task.Namespace != "" && slices.Contains(g.Jobs, task.Namespace+"/"+task.JobID)
}

// CheckImage fails unless the job runs one of the listed images. An archive is
// refused: nothing proves that its content has that digest.
func (g GPUObserver) CheckImage(job *TaskConfig) error {
	if len(g.Images) == 0 {
		return nil
	}
	image := docker.ByDigest(job.Image)
	if image != "" && job.Load == "" && slices.ContainsFunc(g.Images, func(listed string) bool { return docker.ByDigest(listed) == image }) {
		return nil
	}
	return fmt.Errorf("config.image = %q: the client's gpu_observer.images allows %q only, by digest and not from an archive", job.Image, g.Images)
}
