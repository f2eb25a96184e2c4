// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/plugins/base"
	"github.com/hashicorp/nomad/plugins/device"
	"github.com/hashicorp/nomad/plugins/shared/hclspec"

	"nomad-gpu-mem/internal/schema"
	"nomad-gpu-mem/internal/tableconfig"
	"nomad-gpu-mem/internal/version"
)

// Name is the plugin's name.
const Name = "gpu-mem"

// Defaults of the options.
const (
	DefaultMemoryUnit   = "1GiB"
	DefaultPollInterval = "5s"
	DefaultPollTimeout  = "10s"
	DefaultProbation    = "30s"
)

// Config is the operator's plugin block.
type Config struct {
	// MemoryUnit is the size of a unit: "1GiB", "512MiB".
	MemoryUnit string `codec:"memory_unit"`

	// ReservedMemory is not offered on each GPU, besides the driver's own reserve. None if
	// empty.
	ReservedMemory string `codec:"reserved_memory"`

	// MemorySize is the memory of GPUs that do not report theirs, since they share the
	// host's. If empty, they are not offered.
	MemorySize string `codec:"memory_size"`

	// AllowUnmanaged offers memory even while processes that hold no slice use
	// it.
	AllowUnmanaged bool `codec:"allow_unmanaged"`

	// GPUs are settings of single GPUs, by UUID.
	GPUs map[string]GPUConfig `codec:"gpu"`

	// Include and Ignore name GPUs that are offered, and that are not: by UUID, index or
	// model, in which '*' matches any text. If Include is empty, all are offered; Ignore
	// overrides it.
	Include []string `codec:"include"`
	Ignore  []string `codec:"ignore"`

	// XidCritical are the Xids that take a GPU out of use. If empty, all do but
	// those in XidIgnored.
	XidCritical []int `codec:"xid_critical"`
	XidIgnored  []int `codec:"xid_ignored"`

	// Probation is how long a failed GPU must be healthy before it is used again; it
	// doubles with each failure soon after.
	Probation string `codec:"probation"`

	// NVMLLibrary is the path of libnvidia-ml.so.1. If empty, the dynamic
	// linker finds it.
	NVMLLibrary string `codec:"nvml_library"`

	// PollInterval is the time between two readings of the GPUs.
	PollInterval string `codec:"poll_interval"`

	// PollTimeout is how long reading a GPU may take before it counts as hung. Without
	// persistence mode a GPU can take seconds.
	PollTimeout string `codec:"poll_timeout"`

	Table tableconfig.Config `codec:"table"`
}

// GPUConfig is a gpu block: settings of one GPU, which default to those of all.
type GPUConfig struct {
	ReservedMemory string `codec:"reserved_memory"`
	MemorySize     string `codec:"memory_size"`
	AllowUnmanaged *bool  `codec:"allow_unmanaged"`
}

// PluginInfo returns the plugin's name, type and version.
func (p *Plugin) PluginInfo() (*base.PluginInfoResponse, error) {
	return &base.PluginInfoResponse{
		Type:              base.PluginTypeDevice,
		PluginApiVersions: []string{device.ApiVersion010},
		PluginVersion:     version.Version,
		Name:              Name,
	}, nil
}

// ConfigSchema is the schema of Config.
func (p *Plugin) ConfigSchema() (*hclspec.Spec, error) {
	perGPU := []schema.Field{schema.Text("reserved_memory"), schema.Text("memory_size"), schema.Flag("allow_unmanaged")}
	return schema.Object(append(slices.Clone(perGPU),
		schema.Default(schema.Text("memory_unit"), strconv.Quote(DefaultMemoryUnit)),
		schema.LabelledBlocks("gpu", "uuid", perGPU...),
		schema.Texts("include"),
		schema.Texts("ignore"),
		schema.Numbers("xid_critical"),
		schema.Default(schema.Numbers("xid_ignored"), numbers(DefaultXidIgnored)),
		schema.Default(schema.Text("probation"), strconv.Quote(DefaultProbation)),
		schema.Text("nvml_library"),
		schema.Default(schema.Text("poll_interval"), strconv.Quote(DefaultPollInterval)),
		schema.Default(schema.Text("poll_timeout"), strconv.Quote(DefaultPollTimeout)),
		schema.BlockOf("table", tableconfig.Spec()),
	)...), nil
}

// numbers renders a list as HCL.
func numbers(list []int) string { return strings.ReplaceAll(fmt.Sprint(list), " ", ", ") }
