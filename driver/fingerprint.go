// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/plugins/drivers"
	pstructs "github.com/hashicorp/nomad/plugins/shared/structs"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/config"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/injection"
)

// infoTimeout bounds one question to the daemon, or to the allocation table.
const infoTimeout = 10 * time.Second

// Fingerprint tells Nomad whether tasks can run here: at once, and then when
// something changed. The channel stays open: Nomad would open another in a busy loop.
func (p *Plugin) Fingerprint(ctx context.Context) (<-chan *drivers.Fingerprint, error) {
	ch := make(chan *drivers.Fingerprint)
	connected := p.agent.open(time.Now)
	p.spawn(func() {
		defer connected()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(p.ctx, cancel)()
		var last *drivers.Fingerprint
		var before looks
		every(ctx, p.pace.fingerprint, func() {
			next := p.fingerprint(ctx, &before)
			if last != nil && sameFingerprint(last, next) {
				return
			}
			if next.HealthDescription != drivers.DriverHealthy {
				p.logger.Warn("this node needs attention", "reason", next.HealthDescription)
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

// looks is what earlier looks found.
type looks struct {
	seen   bool      // the daemon has answered before
	table  error     // why tasks cannot claim GPU memory, since they cannot
	proven time.Time // when it was last seen that the table can be written
}

func (p *Plugin) fingerprint(ctx context.Context, before *looks) *drivers.Fingerprint {
	s, err := p.serving()
	if err != nil {
		return away(before.seen, err)
	}
	info, err := askFor(ctx, s.engine.Info)
	if err != nil {
		return away(before.seen, fmt.Errorf("docker does not answer: %w", err))
	}
	before.seen = true
	if err := s.reaper.Journal.Check(); err != nil {
		return away(true, err)
	}
	if err := s.checkStaging(); err != nil {
		return away(true, err)
	}
	before.look(s.tableFault(ctx, before, p.pace.proof))
	way, missing := injection.Choose(s.settings, info, nil)
	attributes := nodeAttributes(p.name, s.settings, info, way)
	// GPU tasks would fail here for good, one after the other.
	unusable := ""
	switch {
	case way == config.ByNone && config.Injection(s.settings.GPUInjection) != config.ByEither:
		unusable = fmt.Sprintf("gpu_injection = %q is not possible: %s", s.settings.GPUInjection, strings.Join(missing, "; "))
	case way != config.ByNone && lasting(before.table):
		unusable = fmt.Sprintf("tasks cannot claim GPU memory: %v", before.table)
	}
	if unusable != "" {
		return &drivers.Fingerprint{Attributes: attributes, Health: drivers.HealthStateUnhealthy, HealthDescription: unusable}
	}
	return &drivers.Fingerprint{
		Attributes:        attributes,
		Health:            drivers.HealthStateHealthy,
		HealthDescription: describe(missing, before.table, s.toolkits.Warning(ctx, s.settings, info)),
	}
}

// checkStaging fails if no task could be given what it mounts from its allocation.
func (s *services) checkStaging() error {
	if !s.settings.StagesSources() {
		return nil
	}
	if err := s.staging.Check(docker.ListenerPID(s.settings.Endpoint)); err != nil {
		return fmt.Errorf("tasks cannot have their directories mounted: %w; or set volumes.stage_sources = false", err)
	}
	return nil
}

// look notes a fault of the table. One outage has one text: a new one would be a
// change of the node.
func (l *looks) look(fault error) {
	same := fault != nil && l.table != nil &&
		lasting(fault) == lasting(l.table)
	if !same {
		l.table = fault
	}
}

// lasting reports whether a fault of the table fails each start, as a token without rights
// does, or a namespace that Consul does not have. A start waits for a table that does not
// answer.
func lasting(fault error) bool {
	if fault == nil {
		return false
	}
	for _, passing := range []error{allocator.ErrUnavailable, allocator.ErrConflict, allocator.ErrClosed, context.DeadlineExceeded, context.Canceled} {
		if errors.Is(fault, passing) {
			return false
		}
	}
	return true
}

// tableFault returns why a task could not claim GPU memory; nil if it could. Consul
// gives its servers work to do for each proof that writing is permitted, so a proof
// counts for a while.
func (s *services) tableFault(ctx context.Context, before *looks, proof time.Duration) error {
	if _, err := askFor(ctx, only(s.table.Reach)); err != nil {
		before.proven = time.Time{}
		return err
	}
	if time.Since(before.proven) < proof {
		return nil
	}
	_, err := askFor(ctx, only(s.table.Writable))
	if err == nil {
		before.proven = time.Now()
	}
	return err
}

// only makes a question for askFor of one that has no answer but its error.
func only(question func(context.Context) error) func(context.Context) (struct{}, error) {
	return func(ctx context.Context) (struct{}, error) { return struct{}{}, question(ctx) }
}

// askFor asks one question, but not for long.
func askFor[T any](ctx context.Context, question func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	return question(ctx)
}

// away is the state of a node that can run no task: one without Docker as far as Nomad
// knows, or one that has it and cannot use it.
func away(seen bool, err error) *drivers.Fingerprint {
	health := drivers.HealthStateUndetected
	if seen {
		health = drivers.HealthStateUnhealthy
	}
	return &drivers.Fingerprint{Health: health, HealthDescription: err.Error()}
}

// describe says what people should know of a healthy driver. Where GPUs cannot reach a
// container, for what is missing, or while the allocation table does not answer, it still
// runs tasks that need no GPU, so it stays healthy: Nomad would place none of them on an
// unhealthy driver.
func describe(missing []string, table error, unsafe string) string {
	if table != nil {
		missing = append(missing, fmt.Sprintf("tasks cannot claim GPU memory: %v", table))
	}
	switch {
	case len(missing) > 0:
		if unsafe != "" {
			missing = append(missing, unsafe)
		}
		return "Healthy for tasks without GPU memory only: " + strings.Join(missing, "; ")
	case unsafe != "":
		return "Healthy, but " + unsafe
	}
	return drivers.DriverHealthy
}

func nodeAttributes(driver string, s config.Settings, info docker.Info, way config.Injection) map[string]*pstructs.Attribute {
	prefix := "driver." + driver
	attrs := map[string]*pstructs.Attribute{
		prefix:                     pstructs.NewBoolAttribute(true),
		prefix + ".version":        pstructs.NewStringAttribute(info.Version),
		prefix + ".runtimes":       pstructs.NewStringAttribute(strings.Join(info.Runtimes, ",")),
		prefix + ".os_type":        pstructs.NewStringAttribute(info.OSType),
		prefix + ".gpu_injection":  pstructs.NewStringAttribute(string(way)),
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
