package device

import (
	"github.com/hashicorp/nomad/plugins/base"
	"github.com/hashicorp/nomad/plugins/device"
	"github.com/hashicorp/nomad/plugins/shared/hclspec"

	"nomad-gpu-mem/internal/tableconfig"
	"nomad-gpu-mem/internal/version"
)

// Name is the plugin's name.
const Name = "gpu-mem"

// The first two parts of what a job asks for, device "nvidia/gpu-mem". The third
// is the GPU's UUID.
const (
	Vendor = "nvidia"
	Type   = "gpu-mem"
)

// Defaults of the options.
const (
	DefaultMemoryUnit   = "1GiB"
	DefaultPollInterval = "5s"
	DefaultPollTimeout  = "10s"
)

// Config is the operator's plugin block.
type Config struct {
	// MemoryUnit is the quantum of memory that is sold: "1GiB", "512MiB".
	MemoryUnit string `codec:"memory_unit"`

	// ReservedMemory is kept back on each GPU, besides what its driver keeps
	// for itself. None if empty.
	ReservedMemory string `codec:"reserved_memory"`

	// NVMLLibrary is the path of libnvidia-ml.so.1. If empty, the dynamic
	// linker finds it.
	NVMLLibrary string `codec:"nvml_library"`

	// PollInterval is the time between two readings of the GPUs.
	PollInterval string `codec:"poll_interval"`

	// PollTimeout is how long a GPU may take for a reading before it counts as
	// hung. Without persistence mode a GPU can take seconds.
	PollTimeout string `codec:"poll_timeout"`

	Table tableconfig.Config `codec:"table"`
}

// PluginInfo tells Nomad which plugin this is.
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
	return hclspec.NewObject(map[string]*hclspec.Spec{
		"memory_unit":     text("memory_unit", DefaultMemoryUnit),
		"reserved_memory": hclspec.NewAttr("reserved_memory", "string", false),
		"nvml_library":    hclspec.NewAttr("nvml_library", "string", false),
		"poll_interval":   text("poll_interval", DefaultPollInterval),
		"poll_timeout":    text("poll_timeout", DefaultPollTimeout),
		"table":           hclspec.NewBlock("table", false, tableconfig.Spec()),
	}), nil
}

func text(name, otherwise string) *hclspec.Spec {
	return hclspec.NewDefault(hclspec.NewAttr(name, "string", false), hclspec.NewLiteral(`"`+otherwise+`"`))
}
