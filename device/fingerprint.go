// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"context"
	"time"

	"github.com/hashicorp/nomad/plugins/device"
)

// firstAnswer is how long the first response waits for the first reading. When the agent
// starts, Nomad waits for all plugins; but when a plugin restarts, an empty response makes the
// node lose its GPUs for a moment.
const firstAnswer = time.Second

// Fingerprint starts the plugin's work, which ends with ctx, and streams the
// GPUs: once at the start and then whenever something changed. Nomad opens one
// stream in the life of a process.
func (p *Plugin) Fingerprint(ctx context.Context) (<-chan *device.FingerprintResponse, error) {
	set := p.current()
	if set.pollInterval == 0 {
		return nil, errNotConfigured
	}
	responses := make(chan *device.FingerprintResponse)
	table := newWatch(p.logger, &lazyTable{open: p.openTable, config: set.table}, set.pollInterval)
	publisher := newPublisher(p.logger, p.board, &lazyTable{open: p.openTable, config: set.table})
	p.work.Go(func() { table.run(ctx) })
	p.work.Go(func() { p.poll(ctx, set, table) })
	p.work.Go(func() { publisher.run(ctx) })
	p.usage.note(1)
	p.work.Go(func() {
		defer p.usage.note(-1)
		p.stream(ctx, responses)
	})
	return responses, nil
}

func (p *Plugin) stream(ctx context.Context, responses chan<- *device.FingerprintResponse) {
	defer close(responses)
	newest, changed := p.board.read()
	if newest.readAt.IsZero() {
		patience := time.NewTimer(firstAnswer)
		defer patience.Stop()
		select {
		case <-ctx.Done():
			return
		case <-patience.C:
		case <-changed:
			newest, changed = p.board.read()
		}
	}
	var sent inventory
	for first := true; ; first = false {
		if first || !sameOffer(sent, newest) {
			select {
			case <-ctx.Done():
				return
			case responses <- device.NewFingerprint(deviceGroups(newest)...):
				sent = newest
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
			newest, changed = p.board.read()
		}
	}
}
