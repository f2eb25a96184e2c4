package main

import (
	"context"
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
	"nomad-gpu-mem/internal/cli"
	"nomad-gpu-mem/internal/nvml"
	"nomad-gpu-mem/internal/tableconfig"
)

// serveDevice serves the device plugin until Nomad ends it.
func serveDevice() {
	plugins.Serve(func(logger hclog.Logger) any {
		return device.New(logger, func(library string) device.Reader { return nvml.NewReader(library) }, openDeviceTable)
	})
}

// openDeviceTable returns no table with an error. A nil *allocator.Table would
// be a device.Table that is not nil, and the plugin would not try again.
func openDeviceTable(c tableconfig.Config) (device.Table, error) {
	table, err := openTable(c)
	if err != nil {
		return nil, err
	}
	return table, nil
}

// serveDriver serves the task driver until Nomad ends it. Containers outlive it.
func serveDriver() {
	var plugin *driver.Plugin
	plugins.ServeCtx(func(ctx context.Context, logger hclog.Logger) any {
		plugin = driver.New(ctx, logger,
			func(c docker.Config) (driver.Engine, error) { return docker.New(c) },
			func(c tableconfig.Config) (driver.Table, error) { return openTable(c) })
		return plugin
	})
	plugin.Shutdown()
}

func commands() cli.App {
	return cli.App{OpenTable: openTable, Getenv: os.Getenv, Now: time.Now}
}

// openTable opens the allocation table of a valid configuration. It waits for
// no network.
func openTable(c tableconfig.Config) (*allocator.Table, error) {
	if c.Store == tableconfig.StoreFile {
		return allocator.NewTable(file.New(c.Path)), nil
	}
	store, err := consul.New(consul.Config{Address: c.Address, Token: c.Token, Prefix: c.Prefix})
	if err != nil {
		return nil, err
	}
	return allocator.NewTable(store), nil
}
