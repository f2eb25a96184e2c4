// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/plugins"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/consul"
	"nomad-gpu-mem/allocator/file"
	"nomad-gpu-mem/device"
	"nomad-gpu-mem/driver"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/label"
	"nomad-gpu-mem/internal/cli"
	"nomad-gpu-mem/internal/doctor"
	"nomad-gpu-mem/internal/nvml"
	"nomad-gpu-mem/internal/tableconfig"
)

// serveDevice serves the device plugin until Nomad ends it, or until no agent uses it any more.
func serveDevice() {
	plugins.ServeCtx(func(ctx context.Context, logger hclog.Logger) any {
		plugin := device.New(logger, func(library string) device.Reader { return nvml.NewReader(library) },
			func(c tableconfig.Config) (device.Table, error) { return openDeviceTable(c, logger) })
		go func() {
			if plugin.AwaitUnused(ctx) == nil {
				os.Exit(0) // it reads no GPU, and has nothing to close
			}
		}()
		return plugin
	})
}

// openDeviceTable returns a nil interface with an error. A nil *allocator.Table would be a
// non-nil device.Table, and the plugin would not retry.
func openDeviceTable(c tableconfig.Config, logger hclog.Logger) (device.Table, error) {
	table, err := openTable(c, noticesTo(logger))
	if err != nil {
		return nil, err
	}
	return table, nil
}

// serveDriver serves the task driver until Nomad ends it, or another driver process supersedes
// it. Containers outlive it.
func serveDriver(options driverOptions) {
	outliveAgent()
	var plugin *driver.Plugin
	plugins.ServeCtx(func(ctx context.Context, logger hclog.Logger) any {
		plugin = driver.New(ctx, logger, options.name,
			func(c docker.Config) (driver.Engine, error) { return docker.New(c) },
			func(c tableconfig.Config) (driver.Table, error) { return openTable(c, noticesTo(logger)) })
		go endSuperseded(ctx, plugin)
		return plugin
	})
	plugin.Shutdown()
}

// unusedTime is how long an agent may take to configure a plugin that it has started. An agent
// that is killed before leaves an unused process.
const unusedTime = 2 * time.Minute

// endSuperseded ends the process if another one supersedes it, or if no agent has configured
// the plugin.
func endSuperseded(ctx context.Context, plugin *driver.Plugin) {
	if isUnused(ctx, plugin) || isSuperseded(ctx, plugin) {
		plugin.Shutdown()
		os.Exit(0)
	}
}

// isUnused waits for as long as an agent may take to configure the plugin, or until the plugin ends.
func isUnused(ctx context.Context, plugin *driver.Plugin) bool {
	select {
	case <-time.After(unusedTime):
		return !plugin.Configured()
	case <-plugin.Superseded():
		return false
	case <-ctx.Done():
		return false
	}
}

func isSuperseded(ctx context.Context, plugin *driver.Plugin) bool {
	select {
	case <-plugin.Superseded():
		return true
	case <-ctx.Done():
		return false
	}
}

func commands() cli.App {
	logger := hclog.New(&hclog.LoggerOptions{Name: "nomad-gpu-mem", Output: os.Stderr})
	open := func(c tableconfig.Config) (*allocator.Table, error) { return openTable(c, noticesTo(logger)) }
	return cli.App{OpenTable: open, Getenv: os.Getenv, Now: time.Now, Local: localContainers}
}

// localContainers returns the task driver's containers on this machine, nil if
// it has no Docker engine.
func localContainers(ctx context.Context) (*doctor.Local, error) {
	if os.Getenv("DOCKER_HOST") == "" {
		if _, err := os.Stat(dockerSocket); err != nil {
			return nil, nil
		}
	}
	engine, err := docker.New(docker.Config{})
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	found, err := label.Find(ctx, engine)
	if err != nil {
		return nil, fmt.Errorf("cannot list the containers of Docker on this machine: %w", err)
	}
	name, err := os.Hostname()
	id, unknown := engine.ID(ctx)
	local := &doctor.Local{Node: allocator.NodeName(name), Engine: id}
	for _, c := range found {
		local.Containers = append(local.Containers, doctor.Container{
			Name: c.Name, Alloc: c.Alloc, Attempt: c.Attempt, GPUs: c.GPUs, Running: c.Running, Since: c.CreatedAt,
		})
	}
	return local, errors.Join(err, unknown)
}

// noticesTo logs the messages of the table's store for the operator.
func noticesTo(logger hclog.Logger) func(string) {
	return func(msg string) { logger.Info("allocation table: " + msg) }
}

// dockerSocket is the default socket of an engine; DOCKER_HOST overrides it.
const dockerSocket = "/var/run/docker.sock"

// openTable opens the allocation table of a valid configuration, without network access.
// notify receives messages about the token file for the operator.
func openTable(c tableconfig.Config, notify func(string)) (*allocator.Table, error) {
	if c.Store == tableconfig.StoreFile {
		return allocator.NewTable(file.New(c.Path)), nil
	}
	store, err := consul.New(consul.Config{
		Address: c.Address, Token: c.Token, TokenFile: c.TokenFile, Prefix: c.Prefix,
		CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile, TLSServerName: c.TLSServerName,
		Namespace: c.Namespace, Partition: c.Partition, Datacenter: c.Datacenter,
		Notify: notify,
	})
	if err != nil {
		return nil, err
	}
	return allocator.NewTable(store), nil
}
