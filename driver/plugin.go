// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/plugins/base"
	"github.com/hashicorp/nomad/plugins/drivers"
	"golang.org/x/sync/singleflight"

	"nomad-gpu-mem/driver/attempt"
	"nomad-gpu-mem/driver/config"
	"nomad-gpu-mem/driver/containerspec"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/images"
	"nomad-gpu-mem/driver/injection"
	"nomad-gpu-mem/driver/logpipe"
	"nomad-gpu-mem/driver/netfile"
	"nomad-gpu-mem/driver/staging"
	"nomad-gpu-mem/internal/boot"
	"nomad-gpu-mem/internal/tableconfig"
)

// OpenEngine gives the plugin its engine. It must not wait for a network: an
// unavailable daemon shows up when it is used.
type OpenEngine func(docker.Config) (Engine, error)

// OpenTable gives the plugin the allocation table, on the same terms.
type OpenTable func(tableconfig.Config) (Table, error)

// Plugin is the task driver. Its methods are Nomad's driver interface: each finds its task, and has services act.
type Plugin struct {
	*process
	openEngine OpenEngine
	openTable  OpenTable
	mounts     staging.Mounts
	recoveries singleflight.Group // calls of RecoverTask under way, by task config ID

	services atomic.Pointer[services] // nil until Nomad has configured the plugin for service
}

// process is what the plugin has before it is configured, and what its goroutines share.
type process struct {
	name      string // Name or BuiltinName
	logger    hclog.Logger
	announcer *announcer
	tasks     *tasks
	starts    *starts
	agent     agentWatch
	pace      pace

	ctx      context.Context // ends with Shutdown
	cancel   context.CancelFunc
	routines sync.WaitGroup
	spawning sync.Mutex // nothing is spawned once Shutdown waits

	superseded chan struct{} // closed when this process has to end
	endOnce    sync.Once
}

// services is what the configuration decides, and what acts on tasks, containers and claims.
type services struct {
	*process
	settings  config.Settings
	engine    Engine
	table     taskTable
	reaper    *attempt.Reaper
	images    *images.Cache
	sandboxes *sandboxes
	pipes     *logpipe.Keeper
	staging   *staging.Area
	hosts     netfile.HostsFiles
	toolkits  injection.Toolkits
}

// pace is how often the plugin looks again. Tests are in more of a hurry.
type pace struct {
	fingerprint time.Duration // state of the daemon
	proof       time.Duration // how long a proof that the table can be written counts
	sweep       time.Duration // attempts that no task manages, unused images
	assert      time.Duration // claims of running tasks
	retry       time.Duration // units that another task still holds, an unavailable daemon
	recovery    time.Duration // how long a recovery, or a start, waits for an unavailable daemon
	pool        time.Duration // CPUs that tasks share
	settling    time.Duration // what Nomad may take to recover its tasks after a restart
	lonely      time.Duration // how long the plugin serves without an agent
}

// New returns a plugin that serves under that name, and that has neither connected to
// anything nor started anything.
func New(ctx context.Context, logger hclog.Logger, name string, engine OpenEngine, table OpenTable) *Plugin {
	ctx, cancel := context.WithCancel(ctx)
	logger = logger.Named(name)
	return &Plugin{openEngine: engine, openTable: table, mounts: staging.Kernel{}, process: &process{
		name:       name,
		logger:     logger,
		announcer:  &announcer{ctx: ctx, logger: logger},
		tasks:      newTasks(),
		starts:     newStarts(),
		superseded: make(chan struct{}),
		ctx:        ctx,
		cancel:     cancel,
		pace: pace{
			fingerprint: 30 * time.Second,
			proof:       5 * time.Minute,
			sweep:       15 * time.Second,
			assert:      time.Minute,
			retry:       time.Second,
			recovery:    20 * time.Second,
			pool:        2 * time.Second,
			settling:    5 * time.Minute,
			lonely:      15 * time.Minute,
		},
	}}
}

// SetConfig checks the configuration. Nomad calls it on throw-away instances too,
// without an agent's configuration; only with one does the plugin begin its service.
func (p *Plugin) SetConfig(c *base.Config) error {
	var config config.Config
	if len(c.PluginConfig) > 0 {
		if err := base.MsgPackDecode(c.PluginConfig, &config); err != nil {
			return fmt.Errorf("plugin %q: cannot read its config block: %w", p.name, err)
		}
	}
	checked, err := config.Settings()
	if err != nil {
		return fmt.Errorf("plugin %q: %w", p.name, err)
	}
	if c.AgentConfig == nil {
		return nil
	}
	return p.serve(checked)
}

// serve opens the engine and the table and starts the loops that manage what
// Nomad does not ask about. A plugin is configured once; Nomad starts a new process for
// another configuration.
func (p *Plugin) serve(s config.Settings) error {
	if p.services.Load() != nil {
		return nil
	}
	for _, warning := range s.Warnings(p.name == BuiltinName) {
		p.logger.Warn(warning)
	}
	if containerspec.SharesGPUs("/") {
		p.logger.Warn("this host has one device node for all GPUs (WSL): a task can use every GPU of it, whatever it has booked; " +
			"CUDA_VISIBLE_DEVICES names its own")
	}
	s.CompatLabels = s.CompatLabels || p.name == BuiltinName
	if s.Auth.Config != "" {
		if _, err := os.Stat(s.Auth.Config); err != nil {
			return fmt.Errorf("plugin %q: auth.config = %q cannot be used: %w", p.name, s.Auth.Config, err)
		}
	}
	engine, err := p.openEngine(s.Engine())
	if err != nil {
		return fmt.Errorf("plugin %q: endpoint = %q, or its tls: %w", p.name, s.Endpoint, err)
	}
	table, err := p.openTable(s.Table)
	if err != nil {
		return fmt.Errorf("plugin %q: allocation table: %w", p.name, err)
	}
	reaper := attempt.NewReaper(p.logger, attempt.Options{
		StateDir: s.StateDir, Began: time.Now(), Boot: boot.ID(), KeepContainers: !s.GC.Container, LocalEngine: docker.IsLocal(s.Endpoint),
	}, engine, table, staging.New(s.StateDir, p.mounts))
	reaper.Instance.Announce()
	services := &services{
		process: p.process, settings: s, engine: engine, table: table, reaper: reaper, images: images.New(p.logger, s, engine),
		sandboxes: newSandboxes(), pipes: logpipe.NewKeeper(s.StateDir), staging: reaper.Staging,
	}
	services.images.Resume(time.Now().Add(max(s.ImageDelay, p.pace.settling)))
	p.services.Store(services)
	p.agent.open(time.Now)() // an agent has configured the plugin just now
	p.spawn(func() { services.successionLoop() })
	p.spawn(func() { services.sweepLoop() })
	p.spawn(func() { services.danglingLoop() })
	p.spawn(func() { services.imageLoop() })
	p.spawn(func() { services.poolLoop() })
	p.spawn(func() { services.assertLoop() })
	p.spawn(func() { services.reconcileLoop() })
	return nil
}

// Configured reports whether an agent has configured the plugin for service.
func (p *Plugin) Configured() bool { return p.services.Load() != nil }

// serving returns what the configuration decided, or an error before there is one.
func (p *Plugin) serving() (*services, error) {
	if s := p.services.Load(); s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("plugin %q has not been configured by the agent yet", p.name)
}

func (p *Plugin) settings() config.Settings {
	if s := p.services.Load(); s != nil {
		return s.settings
	}
	return config.Settings{}
}

// spawn runs a goroutine that ends with the plugin. After Shutdown nothing runs any more.
func (p *process) spawn(run func()) {
	p.spawning.Lock()
	defer p.spawning.Unlock()
	if p.ctx.Err() == nil {
		p.routines.Go(run)
	}
}

// Shutdown ends all that the plugin has running and waits for it. Containers and
// claims stay: the next plugin recovers them.
func (p *Plugin) Shutdown() {
	p.spawning.Lock()
	p.cancel()
	p.spawning.Unlock()
	p.routines.Wait()
	if s := p.services.Load(); s != nil {
		s.reaper.Instance.Close()
		_ = s.engine.Close()
		_ = s.table.Close()
	}
}

// every runs do at once and then at each interval, until ctx ends.
func every(ctx context.Context, interval time.Duration, do func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		do()
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

var (
	_ drivers.DriverPlugin            = (*Plugin)(nil)
	_ drivers.ExecTaskStreamingDriver = (*Plugin)(nil)
	_ drivers.DriverNetworkManager    = (*Plugin)(nil)
)
