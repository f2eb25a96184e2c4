// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"context"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/nomad/plugins/base"
	"github.com/hashicorp/nomad/plugins/device"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/storetest"
	"nomad-gpu-mem/internal/nvml"
	"nomad-gpu-mem/internal/nvml/fakenvml"
	"nomad-gpu-mem/internal/tableconfig"
)

// patience bounds what must happen soon; no passing test waits that long.
const patience = 40 * time.Second

// quick is a configuration for tests. Polls are frequent and wait for the GPUs as long as a
// test does: on a busy machine a healthy GPU must not seem to hang.
func quick() Config {
	return Config{MemoryUnit: "1GiB", PollInterval: "20ms", PollTimeout: patience.String(), Probation: "10ms"}
}

// harness is a plugin behind gRPC, as Nomad has it, with a table in memory.
type harness struct {
	t      *testing.T
	timer  *time.Timer
	ctx    context.Context
	nomad  device.DevicePlugin // the client's end
	plugin *Plugin
	store  *storetest.Memory
	stop   context.CancelFunc
}

func newHarness(t *testing.T, open OpenReader, config Config) *harness {
	t.Helper()
	store := storetest.NewMemory()
	openTable := func(tableconfig.Config) (Table, error) { return allocator.NewTable(store), nil }
	p := New(hclog.NewNullLogger(), open, openTable)
	ctx, cancel := context.WithCancel(t.Context())
	timer := time.AfterFunc(patience, cancel)
	stop := func() { timer.Stop(); cancel() }
	client, _ := plugin.TestPluginGRPCConn(t, map[string]plugin.Plugin{
		base.PluginTypeBase:   &base.PluginBase{Impl: p},
		base.PluginTypeDevice: &device.PluginDevice{Impl: p},
	})
	t.Cleanup(func() {
		stop()
		_ = client.Close() // which stops the server, too
		p.work.Wait()
	})
	raw, err := client.Dispense(base.PluginTypeDevice)
	must.NoError(t, err)
	p.proc, p.dev = t.TempDir(), t.TempDir()
	h := &harness{t: t, timer: timer, ctx: ctx, nomad: raw.(device.DevicePlugin), plugin: p, store: store, stop: stop}
	h.configure(config)
	return h
}

// realNVML starts a plugin on a simulated machine.
func realNVML(t *testing.T, m *fakenvml.Machine, config Config) *harness {
	return nvmlAndSysfs(t, m, t.TempDir(), config) // not this machine's PCI devices
}

// nvmlAndSysfs is realNVML on a machine with PCI devices in sysfs.
func nvmlAndSysfs(t *testing.T, m *fakenvml.Machine, sysfs string, config Config) *harness {
	config.NVMLLibrary = m.Library
	return newHarness(t, func(path string) Reader { return nvml.NewReader(path, nvml.WithSysfs(sysfs)) }, config)
}

// stopAfter gives a test another time than patience.
func (h *harness) stopAfter(d time.Duration) { h.timer.Reset(d) }

// end ends the plugin's work, as the end of its process would.
func (h *harness) end() {
	h.stop()
	h.plugin.work.Wait()
}

func (h *harness) configure(config Config) {
	h.t.Helper()
	must.NoError(h.t, h.setConfig(config))
}

func (h *harness) setConfig(config Config) error {
	var packed []byte
	must.NoError(h.t, base.MsgPackEncode(&packed, &config))
	return h.nomad.SetConfig(&base.Config{PluginConfig: packed})
}

// fingerprint opens the stream.
func (h *harness) fingerprint() *stream {
	h.t.Helper()
	responses, err := h.nomad.Fingerprint(h.ctx)
	must.NoError(h.t, err)
	h.t.Cleanup(func() { drain(h, responses) })
	return &stream{t: h.t, ctx: h.ctx, responses: responses}
}

// drain ends a stream: Nomad's client blocks forever on a response that is not received.
func drain[T any](h *harness, responses <-chan T) {
	h.stop()
	for range responses {
	}
}

// stream is a fingerprint stream as the client sees it.
type stream struct {
	t         *testing.T
	ctx       context.Context
	responses <-chan *device.FingerprintResponse
}

// next is the next response. An error or a closed stream would be the plugin's end.
func (s *stream) next() []*device.DeviceGroup {
	s.t.Helper()
	select {
	case r, open := <-s.responses:
		must.True(s.t, open, must.Sprint("the stream was closed"))
		must.NoError(s.t, r.Error)
		for _, group := range r.Devices {
			must.NoError(s.t, group.Validate())
		}
		return r.Devices
	case <-s.ctx.Done():
		s.t.Fatal("no fingerprint")
		return nil
	}
}

// until skips responses until one is so.
func (s *stream) until(so func([]*device.DeviceGroup) bool) []*device.DeviceGroup {
	s.t.Helper()
	for {
		if groups := s.next(); so(groups) {
			return groups
		}
	}
}

// groups counts groups.
func groups(n int) func([]*device.DeviceGroup) bool {
	return func(all []*device.DeviceGroup) bool { return len(all) == n }
}

// health waits for a GPU's units to be healthy, or unhealthy for a reason.
func health(uuid, reason string) func([]*device.DeviceGroup) bool {
	return func(all []*device.DeviceGroup) bool {
		g := groupOf(all, uuid)
		return g != nil && g.Devices[0].Healthy == (reason == "") && contains(g.Devices[0].HealthDesc, reason)
	}
}

func groupOf(all []*device.DeviceGroup, uuid string) *device.DeviceGroup {
	for _, g := range all {
		if g.Name == uuid {
			return g
		}
	}
	return nil
}

func intOf(g *device.DeviceGroup, name string) int64 {
	if a := g.Attributes[name]; a != nil && a.Int != nil {
		return *a.Int
	}
	return -1
}

// reads waits until the GPUs have been read so many times more.
func (h *harness) reads(n int) {
	h.t.Helper()
	for range n {
		_, changed := h.plugin.board.read()
		select {
		case <-changed:
		case <-h.ctx.Done():
			h.t.Fatal("the GPUs are not read")
		}
	}
}

// tableUntil waits until the table is so.
func (h *harness) tableUntil(so func(*allocator.Snapshot) bool) *allocator.Snapshot {
	h.t.Helper()
	table := allocator.NewTable(h.store)
	for {
		snapshot, err := table.Snapshot(h.ctx)
		if err == nil && so(snapshot) {
			return snapshot
		}
		select {
		case <-h.ctx.Done():
			h.t.Fatalf("the table is never so: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
