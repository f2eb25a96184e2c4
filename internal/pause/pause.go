// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package pause waits for a duration or the end of a context.
package pause

import (
	"context"
	"time"
)

// For returns after d, or at once with the cause of ctx when ctx ends first.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
