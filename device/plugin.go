// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/plugins/base"
	"github.com/hashicorp/nomad/plugins/device"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/nvml"
	"nomad-gpu-mem/internal/tableconfig"
)

// Reader reads the node's GPUs. Snapshot returns by ctx's deadline even if
// NVML does not.
type Reader interface {
	Snapshot(ctx context.Context) (*nvml.Snapshot, error)
	Release() error // closes the session until the next snapshot
	Close()
}

// Table is the part of the allocation table that a device plugin uses: it writes states and
// reads its GPUs' claims and cordons.
type Table interface {
	Inspect(context.Context, allocator.GPUID) (allocator.GPU, error)
	PutGPU(context.Context, allocator.GPUID, allocator.GPUState) error
	PutNode(context.Context, allocator.NodeState) error
	Close() error
}

// OpenReader returns the reader for NVML's library at a path; an empty path
// means wherever the dynamic linker finds it. It touches no GPU.
type OpenReader func(libraryPath string) Reader

// OpenTable opens the allocation table. A failure is retried.
type OpenTable func(tableconfig.Config) (Table, error)

// errNotConfigured is returned when Nomad has not configured the plugin yet.
var errNotConfigured = errors.New("plugin \"" + Name + "\" has no configuration yet")

// Plugin is the device plugin. Its methods are Nomad's device interface.
type Plugin struct {
	logger     hclog.Logger
	openReader OpenReader
	openTable  OpenTable
	board      *board[inventory]
	usage      usage
	proc       string         // where proc is mounted
	dev        string         // where device nodes are
	work       sync.WaitGroup // of all goroutines of Fingerprint and Stats

	mu       sync.Mutex
	settings settings
}

var _ device.DevicePlugin = (*Plugin)(nil)

// New returns a plugin. It opens and starts nothing before Fingerprint.
func New(logger hclog.Logger, reader OpenReader, table OpenTable) *Plugin {
	return &Plugin{logger: logger.Named(Name), openReader: reader, openTable: table, board: newBoard[inventory](), usage: newUsage(), proc: "/proc", dev: "/dev"}
}

// SetConfig checks the configuration and keeps it for Fingerprint. Nomad calls it several
// times, mostly on processes that it ends at once.
func (p *Plugin) SetConfig(c *base.Config) error {
	var config Config
	if len(c.PluginConfig) > 0 {
		if err := base.MsgPackDecode(c.PluginConfig, &config); err != nil {
			return fmt.Errorf("plugin %q: cannot read its config block: %w", Name, err)
		}
	}
	checked, err := config.settings()
	if err != nil {
		return fmt.Errorf("plugin %q: %w", Name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settings = checked
	return nil
}

func (p *Plugin) current() settings {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.settings
}
