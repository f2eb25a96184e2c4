// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"nomad-gpu-mem/allocator"
)

// open opens the table for a command that reads it. The caller closes the table, as with
// the functions below.
func (a App) open(flags *tableFlags) (*allocator.Table, error) {
	return a.openTable(flags, flags.explain)
}

// openToChange opens and reads the table for a command that then changes it.
func (a App) openToChange(ctx context.Context, flags *tableFlags) (*allocator.Table, *allocator.Snapshot, error) {
	table, err := a.openTable(flags, flags.explainChange)
	if err != nil {
		return nil, nil, err
	}
	snapshot, err := table.Snapshot(ctx)
	if err != nil {
		return nil, nil, errors.Join(flags.explainChange(err), table.Close())
	}
	return table, snapshot, nil
}

// openGPU opens the table to change the entry of the GPU that the operator named.
func (a App) openGPU(ctx context.Context, flags *tableFlags, name string) (*allocator.Table, allocator.GPU, error) {
	table, snapshot, err := a.openToChange(ctx, flags)
	if err != nil {
		return nil, allocator.GPU{}, err
	}
	gpu, err := named(snapshot.GPUs, name)
	if err != nil {
		return nil, allocator.GPU{}, errors.Join(err, table.Close())
	}
	return table, gpu, nil
}

func (a App) openTable(flags *tableFlags, explain func(error) error) (*allocator.Table, error) {
	config, err := flags.resolve()
	if err != nil {
		return nil, err
	}
	if err := exists(config); err != nil {
		return nil, explain(err)
	}
	table, err := a.OpenTable(config)
	if err != nil {
		return nil, explain(err)
	}
	return table, nil
}

// named finds the only GPU with a UUID that equals or starts with the name.
func named(gpus []allocator.GPU, name string) (allocator.GPU, error) {
	var found []allocator.GPU
	for _, gpu := range gpus {
		if string(gpu.ID) == name {
			return gpu, nil
		}
		if strings.HasPrefix(string(gpu.ID), name) {
			found = append(found, gpu)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return allocator.GPU{}, fmt.Errorf("no GPU in the allocation table has the UUID %q; `nomad-gpu-mem status` lists all", name)
	}
	var ids []string
	for _, gpu := range found {
		ids = append(ids, string(gpu.ID))
	}
	slices.Sort(ids)
	return allocator.GPU{}, usageError{fmt.Errorf("%d GPUs have UUIDs that start with %q: %s", len(ids), name, strings.Join(ids, ", "))}
}
