package driver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/plugins/drivers"
	pstructs "github.com/hashicorp/nomad/plugins/shared/structs"

	"nomad-gpu-mem/driver/docker"
)

// infoTimeout bounds one question to the daemon.
const infoTimeout = 10 * time.Second

// Fingerprint tells Nomad whether tasks can run here: at once, and then when
// something changed. The channel stays open: Nomad would open another in a busy loop.
func (p *Plugin) Fingerprint(ctx context.Context) (<-chan *drivers.Fingerprint, error) {
	ch := make(chan *drivers.Fingerprint)
	p.spawn(func() {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(p.ctx, cancel)()
		var last *drivers.Fingerprint
		seen := false // the daemon has answered before
		every(ctx, p.pace.fingerprint, func() {
			next := p.fingerprint(ctx, seen)
			seen = seen || next.Health == drivers.HealthStateHealthy
			if last != nil && sameFingerprint(last, next) {
				return
			}
			select {
			case ch <- next:
				last = next
			case <-ctx.Done():
			}
		})
	})
	return ch, nil
}

func (p *Plugin) fingerprint(ctx context.Context, seen bool) *drivers.Fingerprint {
	s, err := p.serving()
	if err != nil {
		return away(seen, err)
	}
	ctx, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	info, err := s.engine.Info(ctx)
	if err != nil {
		return away(seen, fmt.Errorf("docker does not answer: %w", err))
	}
	return &drivers.Fingerprint{
		Attributes:        nodeAttributes(s.settings, info),
		Health:            drivers.HealthStateHealthy,
		HealthDescription: describe(s.settings, info),
	}
}

// away is the state of a node whose daemon does not answer: without Docker as far as
// Nomad knows, or with one that was there before.
func away(seen bool, err error) *drivers.Fingerprint {
	health := drivers.HealthStateUndetected
	if seen {
		health = drivers.HealthStateUnhealthy
	}
	return &drivers.Fingerprint{Health: health, HealthDescription: err.Error()}
}

// describe says what people should know of a healthy driver. A daemon without the
// NVIDIA runtime still runs tasks that need no GPU.
func describe(s settings, info docker.Info) string {
	if slices.Contains(info.Runtimes, s.NvidiaRuntime) {
		return drivers.DriverHealthy
	}
	return fmt.Sprintf("Healthy for tasks without GPU memory only: docker has no runtime %q (nvidia_runtime)", s.NvidiaRuntime)
}

func nodeAttributes(s settings, info docker.Info) map[string]*pstructs.Attribute {
	const prefix = "driver." + Name
	attrs := map[string]*pstructs.Attribute{
		prefix:                     pstructs.NewBoolAttribute(true),
		prefix + ".version":        pstructs.NewStringAttribute(info.Version),
		prefix + ".runtimes":       pstructs.NewStringAttribute(strings.Join(info.Runtimes, ",")),
		prefix + ".os_type":        pstructs.NewStringAttribute(info.OSType),
		prefix + ".nvidia_runtime": pstructs.NewBoolAttribute(slices.Contains(info.Runtimes, s.NvidiaRuntime)),
	}
	for name, on := range map[string]bool{
		".privileged.enabled": s.AllowPrivileged,
		".volumes.enabled":    s.Volumes.Enabled,
	} {
		if on {
			attrs[prefix+name] = pstructs.NewBoolAttribute(true)
		}
	}
	if info.BridgeIP != "" {
		attrs[prefix+".bridge_ip"] = pstructs.NewStringAttribute(info.BridgeIP)
	}
	if s.PidsLimit > 0 {
		attrs[prefix+".pids.limit"] = pstructs.NewIntAttribute(s.PidsLimit, "")
	}
	return attrs
}

func sameFingerprint(a, b *drivers.Fingerprint) bool {
	return a.Health == b.Health && a.HealthDescription == b.HealthDescription &&
		maps.EqualFunc(a.Attributes, b.Attributes, func(x, y *pstructs.Attribute) bool { return x.GoString() == y.GoString() })
}
