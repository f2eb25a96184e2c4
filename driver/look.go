// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"strings"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/docker"
)

// Found is a container of this driver, as its labels tell.
type Found struct {
	docker.Container
	Alloc   string
	Attempt string            // that claimed for it
	GPUs    []allocator.GPUID // that it sees; none if it holds no slice
}

// Look returns all containers of this driver on the engine, for those who look
// after the table without being the plugin.
func Look(ctx context.Context, engine interface {
	List(ctx context.Context, labels map[string]string) ([]docker.Container, error)
}) ([]Found, error) {
	containers, err := engine.List(ctx, map[string]string{labelAttempt: ""})
	if err != nil {
		return nil, err
	}
	found := make([]Found, 0, len(containers))
	for _, c := range containers {
		if !ours(c) {
			continue
		}
		f := Found{Container: c, Alloc: c.Labels[labelAlloc], Attempt: c.Labels[labelAttempt]}
		for gpu := range strings.FieldsSeq(c.Labels[labelGPUs]) {
			f.GPUs = append(f.GPUs, allocator.GPUID(gpu))
		}
		found = append(found, f)
	}
	return found, nil
}
