// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"github.com/hashicorp/nomad/plugins/base"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/hashicorp/nomad/plugins/shared/hclspec"

	"nomad-gpu-mem/driver/config"
	"nomad-gpu-mem/internal/version"
)

// What a job writes as `driver`. Under the second name the driver takes the place of
// Nomad's own: see takeover.go.
const (
	Name        = "gpu-docker"
	BuiltinName = "docker"
)

// PluginInfo tells Nomad which plugin this is. Of two drivers of one name it takes the
// one with the higher version; that of its own Docker driver is 0.1.0.
func (p *Plugin) PluginInfo() (*base.PluginInfoResponse, error) {
	return &base.PluginInfoResponse{
		Type:              base.PluginTypeDriver,
		PluginApiVersions: []string{drivers.ApiVersion010},
		PluginVersion:     version.Version,
		Name:              p.name,
	}, nil
}

// ConfigSchema is the schema of the operator's plugin block; see Config.
func (p *Plugin) ConfigSchema() (*hclspec.Spec, error) { return config.Spec(), nil }

// TaskConfigSchema is the schema of a job's config block; see TaskConfig.
func (p *Plugin) TaskConfigSchema() (*hclspec.Spec, error) { return config.TaskSpec(), nil }

// Capabilities tells Nomad what the driver can do. MustInitiateNetwork: a group's
// network namespace is made by CreateNetwork, since a container can join only the
// namespace of another container.
func (p *Plugin) Capabilities() (*drivers.Capabilities, error) {
	return &drivers.Capabilities{
		SendSignals: true,
		Exec:        true,
		FSIsolation: drivers.FSIsolationImage,
		NetIsolationModes: []drivers.NetIsolationMode{
			drivers.NetIsolationModeHost,
			drivers.NetIsolationModeGroup,
			drivers.NetIsolationModeTask,
		},
		MustInitiateNetwork:  true,
		MountConfigs:         drivers.MountConfigSupportAll,
		DisableLogCollection: p.settings().DisableLogCollection,
	}, nil
}
