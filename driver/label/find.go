// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package label

import (
	"context"
	"strings"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/docker"
)

// Found is a container of this driver, as its labels describe it.
type Found struct {
	docker.Container
	Alloc   string
	Attempt string            // that claimed for it
	GPUs    []allocator.GPUID // that it sees; none if it holds no slice
}

// Find returns all containers of this driver on the engine. It is for programs other than the plugin,
// which know the containers by their labels only.
func Find(ctx context.Context, engine interface {
	List(ctx context.Context, labels map[string]string) ([]docker.Container, error)
}) ([]Found, error) {
	containers, err := engine.List(ctx, map[string]string{Attempt: ""})
	if err != nil {
		return nil, err
	}
	found := make([]Found, 0, len(containers))
	for _, c := range containers {
		if !Ours(c) {
			continue
		}
		f := Found{Container: c, Alloc: c.Labels[Alloc], Attempt: c.Labels[Attempt]}
		for gpu := range strings.FieldsSeq(c.Labels[GPUs]) {
			f.GPUs = append(f.GPUs, allocator.GPUID(gpu))
		}
		found = append(found, f)
	}
	return found, nil
}
