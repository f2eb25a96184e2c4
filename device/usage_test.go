// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/shoenig/test/must"
)

// A process ends once no agent has used it for UnusedTime: neither before one of its agents opens the stream of GPUs, nor after
// the agent was killed.
func TestUnusedProcess(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(p *Plugin) (wantAfter time.Duration){
		"never used": func(*Plugin) time.Duration { return UnusedTime },
		"used late": func(p *Plugin) time.Duration {
			time.Sleep(UnusedTime - time.Second)
			p.usage.note(1)
			time.Sleep(24 * time.Hour)
			p.usage.note(-1)
			return 24*time.Hour + 2*UnusedTime - time.Second
		},
		"used by the next agent as well": func(p *Plugin) time.Duration {
			p.usage.note(1)
			p.usage.note(1)
			p.usage.note(-1)
			time.Sleep(time.Hour)
			p.usage.note(-1)
			return time.Hour + UnusedTime
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := New(hclog.NewNullLogger(), nil, nil)
				begin, ended := time.Now(), make(chan time.Duration, 1)
				go func() {
					must.NoError(t, p.AwaitUnused(t.Context()))
					ended <- time.Since(begin)
				}()
				want := use(p)
				must.Eq(t, want, <-ended)
			})
		})
	}
}

func TestUnusedProcessIsAwaitedUntilTheContextEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must.ErrorIs(t, New(hclog.NewNullLogger(), nil, nil).AwaitUnused(ctx), context.Canceled)
}
