// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"context"
	"time"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/nvml"
)

// poll reads the GPUs at each interval, and when the table changes, and posts the inventory.
// It ends with ctx.
func (p *Plugin) poll(ctx context.Context, set settings, table *watch) {
	reader := p.openReader(set.library)
	defer reader.Close()
	users := newUsers(p.proc)
	ticker := time.NewTicker(set.pollInterval)
	defer ticker.Stop()
	for between := false; ; {
		before, _ := p.board.read()
		known, changed := table.view.read()
		r := readOrRelease(reader, func() reading { return readOnce(ctx, reader, set) }, known.gpus)
		r.between = between
		if underWSL(p.dev) {
			hideProcesses(r.snapshot)
		}
		r.table = table.of(ctx, gpusOf(r.snapshot, before))
		r.users = users.of(pidsOf(r.snapshot))
		if ctx.Err() != nil {
			return
		}
		now := before.after(r, set)
		logChanges(p.logger, before, now, set)
		p.board.post(now)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			between = false
		case <-changed:
			between = true
		}
	}
}

func readOnce(ctx context.Context, reader Reader, set settings) reading {
	ctx, cancel := context.WithTimeout(ctx, set.pollTimeout)
	defer cancel()
	snapshot, err := reader.Snapshot(ctx)
	return reading{at: time.Now(), snapshot: snapshot, err: err}
}

// gpusOf returns the GPUs to look up in the table: those found, and those that are unreadable
// now.
func gpusOf(s *nvml.Snapshot, before inventory) []allocator.GPUID {
	var ids []allocator.GPUID
	seen := map[allocator.GPUID]bool{"": true}
	add := func(id allocator.GPUID) {
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	for _, known := range [][]gpu{before.offered, before.refused} {
		for _, g := range known {
			add(g.id())
		}
	}
	if s != nil {
		for _, g := range s.GPUs {
			add(allocator.GPUID(g.UUID))
		}
	}
	return ids
}

func pidsOf(s *nvml.Snapshot) []int {
	var pids []int
	if s == nil {
		return nil
	}
	for _, g := range s.GPUs {
		for _, process := range g.Processes {
			pids = append(pids, process.PID)
		}
	}
	return pids
}
