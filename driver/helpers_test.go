// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/plugins/base"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"
	"github.com/shoenig/test/wait"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/storetest"
	"nomad-gpu-mem/driver/attempt"
	"nomad-gpu-mem/driver/configtest"
	"nomad-gpu-mem/driver/containerspec"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/staging"
	"nomad-gpu-mem/internal/tableconfig"
)

func quiet() hclog.Logger { return hclog.NewNullLogger() }

// world is a node as it outlives the plugin: its engine, the table, the disk.
type world struct {
	t        *testing.T
	name     string // of the plugin
	engine   *fakeEngine
	open     OpenEngine
	store    *storetest.Memory
	table    *allocator.Table
	stateDir string
	config   string // of the plugin, besides state_dir
	mounts   staging.Mounts
	assert   time.Duration // pace of the plugin's look at its claims
	settling time.Duration // what the agent may take to recover its tasks
	starts   int
}

func newWorld(t *testing.T) *world {
	store, engine := storetest.NewMemory(), newFakeEngine()
	return &world{
		t: t, name: Name, engine: engine, open: func(docker.Config) (Engine, error) { return engine, nil }, store: store, table: allocator.NewTable(store), stateDir: t.TempDir(),
		settling: 200 * time.Millisecond, mounts: noMounts{}, config: `claim_timeout = "5s"`, assert: 10 * time.Millisecond,
	}
}

// earlier is the table an hour ago.
func (w *world) earlier() *allocator.Table {
	return allocator.NewTable(w.store, allocator.WithClock(func() time.Time { return time.Now().Add(-time.Hour) }))
}

// noMounts makes none: the fake engine looks at no source.
type noMounts struct{}

func (noMounts) Tmpfs(string) error           { return nil }
func (noMounts) Bind(string, string) error    { return nil }
func (noMounts) Follow(string) error          { return nil }
func (noMounts) ReadOnly(string) error        { return nil }
func (noMounts) Cover(_, _, _ string) error   { return nil }
func (noMounts) Unmount(string) error         { return nil }
func (noMounts) IsMount(string) (bool, error) { return true, nil }

// keptTable outlives the plugins that close it.
type keptTable struct{ *allocator.Table }

func (keptTable) Close() error { return nil }

// driver is one process of the plugin, spoken to as Nomad does.
type driver struct {
	drivers.DriverPlugin // by way of gRPC
	plugin               *Plugin
	kill                 func()

	mu     sync.Mutex
	events []string
}

// boot starts the plugin, and ends it with the test if kill did not.
func (w *world) boot() *driver {
	w.t.Helper()
	p := w.newPlugin()
	client, _ := plugin.TestPluginGRPCConn(w.t, map[string]plugin.Plugin{
		base.PluginTypeDriver: drivers.NewDriverPlugin(p, quiet()),
		base.PluginTypeBase:   &base.PluginBase{Impl: p},
	})
	raw, err := client.Dispense(base.PluginTypeDriver)
	must.NoError(w.t, err)
	d := &driver{plugin: p, DriverPlugin: raw.(drivers.DriverPlugin)}
	must.NoError(w.t, d.SetConfig(w.agentConfig()))

	ctx, cancel := context.WithCancel(context.Background())
	events, err := p.TaskEvents(ctx)
	must.NoError(w.t, err)
	var collector sync.WaitGroup
	collector.Go(func() { d.collect(ctx, events) })
	d.kill = sync.OnceFunc(func() {
		_ = client.Close() // and the server with it
		p.Shutdown()
		cancel()
		collector.Wait()
	})
	w.t.Cleanup(d.kill)
	return d
}

func (w *world) newPlugin() *Plugin {
	// Not the test's context: it ends before the test's cleanup, which still needs the plugin.
	p := New(context.Background(), quiet(), w.name, w.open,
		func(tableconfig.Config) (Table, error) { return keptTable{w.table}, nil })
	p.mounts = w.mounts
	p.pace = pace{
		fingerprint: 10 * time.Millisecond,
		proof:       20 * time.Millisecond,
		sweep:       10 * time.Millisecond,
		assert:      w.assert,
		retry:       10 * time.Millisecond,
		recovery:    50 * time.Millisecond,
		pool:        10 * time.Millisecond,
		settling:    w.settling,
		lonely:      time.Hour,
	}
	return p
}

// agentConfig is what makes a plugin serve.
func (w *world) agentConfig() *base.Config {
	w.t.Helper()
	var encoded []byte
	must.NoError(w.t, base.MsgPackEncode(&encoded, configtest.Plugin(w.t, fmt.Sprintf("state_dir = %q\n%s", w.stateDir, w.config))))
	return &base.Config{PluginConfig: encoded, AgentConfig: &base.AgentConfig{Driver: &base.ClientDriverConfig{}}}
}

func (d *driver) collect(ctx context.Context, events <-chan *drivers.TaskEvent) {
	for {
		select {
		case event, ok := <-events:
			if !ok {
				return
			}
			d.mu.Lock()
			d.events = append(d.events, event.Message)
			d.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

// reported reports whether an event with that text was sent.
func (d *driver) reported(text string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Contains(strings.Join(d.events, "\n"), text)
}

// task is one start of a task with bookings, as Nomad hands it to the driver.
func (w *world) task(hcl string, bookings ...allocator.Booking) *drivers.TaskConfig {
	w.t.Helper()
	return w.taskOf(allocID, hcl, bookings...)
}

func (w *world) taskOf(alloc, hcl string, bookings ...allocator.Booking) *drivers.TaskConfig {
	w.t.Helper()
	w.starts++
	dir := filepath.Join(w.t.TempDir(), alloc)
	must.NoError(w.t, os.MkdirAll(filepath.Join(dir, "app", "local"), 0o755))
	task := &drivers.TaskConfig{
		ID: fmt.Sprintf("%s/app/%d", alloc, w.starts), Name: "app", JobName: "job", JobID: "job", Namespace: "default",
		AllocID: alloc, AllocDir: dir, NodeID: "node", NodeName: "node-1",
		StdoutPath: os.DevNull, StderrPath: os.DevNull,
		Env:       map[string]string{},
		DeviceEnv: map[string]string{},
		Resources: &drivers.Resources{
			NomadResources: &structs.AllocatedTaskResources{
				Memory: structs.AllocatedMemoryResources{MemoryMB: 64},
				Cpu:    structs.AllocatedCpuResources{CpuShares: 100},
			},
			LinuxResources: &drivers.LinuxResources{CPUShares: 100, PercentTicks: 0.1, MemoryLimitBytes: 64 << 20},
		},
	}
	for _, b := range bookings {
		key, value, err := b.Env()
		must.NoError(w.t, err)
		for _, env := range []map[string]string{task.Env, task.DeviceEnv} {
			env[key], env[containerspec.VisibleDevices] = value, string(b.GPU)
		}
	}
	must.NoError(w.t, task.EncodeConcreteDriverConfig(configtest.Task(w.t, hcl)))
	return task
}

// claims returns who holds what: "<GPU>: <alloc> <units> <state>".
func (w *world) claims() (all []string) {
	w.t.Helper()
	snapshot, err := w.table.Snapshot(w.t.Context())
	must.NoError(w.t, err)
	for _, gpu := range snapshot.GPUs {
		for _, claim := range gpu.Claims() {
			all = append(all, fmt.Sprintf("%s: %s %s %s", gpu.ID, claim.Alloc, claim.Units, claim.State))
		}
	}
	return all
}

// stuck returns the GPUs with containers that cannot be ended.
func (w *world) stuck() (all []allocator.GPUID) {
	w.t.Helper()
	snapshot, err := w.table.Snapshot(w.t.Context())
	must.NoError(w.t, err)
	for _, gpu := range snapshot.GPUs {
		for _, claim := range gpu.Claims() {
			if !claim.StuckAt.IsZero() {
				all = append(all, gpu.ID)
			}
		}
	}
	return all
}

// nothingLeft waits until no container, claim or record is left.
func (w *world) nothingLeft() {
	w.t.Helper()
	eventually(w.t, func() bool {
		ids, err := attempt.OpenJournal(w.stateDir).List()
		return err == nil && len(ids) == 0 && w.engine.count() == 0 && len(w.claims()) == 0
	})
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	must.Wait(t, wait.InitialSuccess(wait.BoolFunc(ok), wait.Timeout(time.Minute), wait.Gap(5*time.Millisecond)))
}

const (
	allocID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
	gpuA    = allocator.GPUID("GPU-aaaa")
	gpuB    = allocator.GPUID("GPU-bbbb")
)

// slice is a booking of units of 1 GiB on a GPU of 24 GiB.
func slice(gpu allocator.GPUID, units ...int) allocator.Booking {
	return allocator.Booking{GPU: gpu, UnitMiB: 1024, Of: 23, TotalMiB: 24576, Units: allocator.NewUnitSet(units...)}
}
