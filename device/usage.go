// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"context"
	"time"
)

// UnusedTime is how long a process of the plugin may go without an agent's stream of GPUs. An agent that starts a plugin opens
// the stream within seconds. Nomad's next agent ends the plugins of one that was killed, but not those that the killed agent had
// only begun to use, as to validate its configuration: of these it knows nothing.
const UnusedTime = 2 * time.Minute

// usage counts the open streams of GPUs. An agent keeps its stream open for as long as it uses the process.
type usage struct{ *board[int] }

func newUsage() usage { return usage{newBoard[int]()} }

// note counts a stream that has opened (1) or closed (-1).
func (u usage) note(change int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.replace(u.newest + change)
}

// AwaitUnused returns nil when no agent has used this process for UnusedTime, or the error of ctx.
func (p *Plugin) AwaitUnused(ctx context.Context) error {
	for {
		open, changed := p.usage.read()
		unused := time.NewTimer(UnusedTime)
		if open > 0 {
			unused.Stop()
		}
		select {
		case <-ctx.Done():
			unused.Stop()
			return ctx.Err()
		case <-changed:
			unused.Stop()
		case <-unused.C:
			return nil
		}
	}
}
