// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package attack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/helper/pluginutils/hclutils"
	"github.com/hashicorp/nomad/plugins/base"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/file"
	"nomad-gpu-mem/driver"
	"nomad-gpu-mem/driver/config"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/internal/tableconfig"
)

// plugin is one process of the driver, as an agent has it.
type plugin struct {
	*driver.Plugin
	log *lockedBuffer

	stop context.CancelFunc // of the events
	done sync.WaitGroup

	mu     sync.Mutex
	events []*drivers.TaskEvent
}

// patience bounds a call to the driver. A call that takes longer hangs.
const patience = time.Minute

var errHangs = errors.New("the call does not return: the driver hangs")

// bootPlugin configures a plugin as an agent does. It works through the relay.
func (s *scene) bootPlugin() *plugin {
	t := s.t
	t.Helper()
	log := &lockedBuffer{}
	logger := hclog.New(&hclog.LoggerOptions{Output: log, Level: hclog.Debug})
	p := &plugin{log: log, Plugin: driver.New(context.Background(), logger, driver.Name,
		func(c docker.Config) (driver.Engine, error) { return docker.New(c) },
		func(tableconfig.Config) (driver.Table, error) { return allocator.NewTable(s.store()), nil })}
	schema, err := p.ConfigSchema()
	must.NoError(t, err)
	var client config.Config
	hclutils.NewConfigParser(schema).ParseHCL(t, fmt.Sprintf("config {\nstate_dir = %q\nendpoint = %q\ninfra_image = %q\n%s\n%s\n}",
		s.stateDir, "unix://"+s.stage.relay.path, s.stage.pauseImage, oneOfSeveral, s.operator), &client)
	var encoded []byte
	must.NoError(t, base.MsgPackEncode(&encoded, client))
	must.NoError(t, p.SetConfig(&base.Config{
		PluginConfig: encoded, AgentConfig: &base.AgentConfig{Driver: &base.ClientDriverConfig{}},
	}))
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	events, err := p.TaskEvents(ctx)
	must.NoError(t, err)
	p.done.Go(func() { p.collect(ctx, events) })
	return p
}

// oneOfSeveral stops the drivers of two scenes from removing each other's containers.
// Agents must not share an engine as these do.
const oneOfSeveral = "gc {\n dangling_containers {\n  enabled = false\n }\n}"

// store is the store of the table: a file, unless a row sets another.
func (s *scene) store() allocator.Store {
	if s.openStore != nil {
		return s.openStore()
	}
	return file.New(filepath.Join(s.dir, "table.json"))
}

func (p *plugin) collect(ctx context.Context, events <-chan *drivers.TaskEvent) {
	for {
		select {
		case event, ok := <-events:
			if !ok {
				return
			}
			p.mu.Lock()
			p.events = append(p.events, event)
			p.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

// messages returns the texts of a task's events, as its owner reads them.
func (p *plugin) messages(taskID string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, event := range p.events {
		if event.TaskID == taskID {
			all = append(all, event.Message)
		}
	}
	return strings.Join(all, "\n")
}

// end ends the process. Its containers keep running.
func (p *plugin) end() error {
	p.stop()
	p.done.Wait()
	return within(func() error { p.Shutdown(); return nil })
}

// within runs a call to the driver, with a timeout.
func within(call func() error) error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return errHangs
	}
}

// lockedBuffer is a log for concurrent writers and readers.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// parseTask reads a job's config block as Nomad does.
func (p *plugin) parseTask(t *testing.T, hcl string) *config.TaskConfig {
	t.Helper()
	schema, err := p.TaskConfigSchema()
	must.NoError(t, err)
	var job config.TaskConfig
	hclutils.NewConfigParser(schema).ParseHCL(t, "config {\n"+hcl+"\n}", &job)
	return &job
}
