// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/nomad/helper/pluginutils/hclutils"
	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/internal/quantity"
)

// TaskConfig is a job's `config` block. The keys and their meaning are those of
// Nomad's Docker driver, so that a job moves here by changing `driver` alone.
type TaskConfig struct {
	Image            string `codec:"image"`
	ImagePullTimeout string `codec:"image_pull_timeout"` // duration; empty means the plugin's
	ForcePull        bool   `codec:"force_pull"`
	Load             string `codec:"load"` // tar archive under local/
	Auth             Auth   `codec:"auth"`
	AuthSoftFail     bool   `codec:"auth_soft_fail"` // missing credentials are only a warning

	Command      string             `codec:"command"`
	Args         []string           `codec:"args"`
	Entrypoint   []string           `codec:"entrypoint"`
	WorkDir      string             `codec:"work_dir"`
	Hostname     string             `codec:"hostname"`
	TTY          bool               `codec:"tty"`
	Interactive  bool               `codec:"interactive"`
	Init         bool               `codec:"init"`
	Labels       hclutils.MapStrStr `codec:"labels"`
	Healthchecks Healthchecks       `codec:"healthchecks"`

	ContainerExistsAttempts int `codec:"container_exists_attempts"`

	CPUHardLimit    bool               `codec:"cpu_hard_limit"`
	CPUCFSPeriod    int64              `codec:"cpu_cfs_period"` // microseconds
	CpusetCpus      string             `codec:"cpuset_cpus"`
	MemoryHardLimit int64              `codec:"memory_hard_limit"` // MiB
	PidsLimit       int64              `codec:"pids_limit"`
	ShmSize         int64              `codec:"shm_size"` // bytes
	Ulimit          hclutils.MapStrStr `codec:"ulimit"`
	Sysctl          hclutils.MapStrStr `codec:"sysctl"`
	StorageOpt      map[string]string  `codec:"storage_opt"`
	OOMScoreAdj     int                `codec:"oom_score_adj"`

	Privileged     bool     `codec:"privileged"`
	CapAdd         []string `codec:"cap_add"`
	CapDrop        []string `codec:"cap_drop"`
	SecurityOpt    []string `codec:"security_opt"`
	ReadonlyRootfs bool     `codec:"readonly_rootfs"`
	Runtime        string   `codec:"runtime"`
	GroupAdd       []string `codec:"group_add"`
	IPCMode        string   `codec:"ipc_mode"`
	PIDMode        string   `codec:"pid_mode"`
	UTSMode        string   `codec:"uts_mode"`
	UsernsMode     string   `codec:"userns_mode"`
	Cgroupns       string   `codec:"cgroupns"`
	Isolation      string   `codec:"isolation"` // Windows only: refused
	Devices        []Device `codec:"devices"`

	NetworkMode          string             `codec:"network_mode"`
	Ports                []string           `codec:"ports"`
	PortMap              hclutils.MapStrInt `codec:"port_map"`
	NetworkAliases       []string           `codec:"network_aliases"`
	IPv4Address          string             `codec:"ipv4_address"`
	IPv6Address          string             `codec:"ipv6_address"`
	MACAddress           string             `codec:"mac_address"`
	AdvertiseIPv6Address bool               `codec:"advertise_ipv6_address"`
	DNSServers           []string           `codec:"dns_servers"`
	DNSSearchDomains     []string           `codec:"dns_search_domains"`
	DNSOptions           []string           `codec:"dns_options"`
	ExtraHosts           []string           `codec:"extra_hosts"`

	Volumes      []string `codec:"volumes"` // source:target[:mode]
	VolumeDriver string   `codec:"volume_driver"`
	Mount        []Mount  `codec:"mount"`
	MountsList   []Mount  `codec:"mounts"`

	Logging Logging `codec:"logging"`
}

// Auth is a job's own login at the image's registry.
type Auth struct {
	Username      string `codec:"username"`
	Password      string `codec:"password"`
	Email         string `codec:"email"`
	ServerAddress string `codec:"server_address"`
}

// Healthchecks can switch off the image's own health check.
type Healthchecks struct {
	Disable bool `codec:"disable"`
}

// Device is a host device handed to the container.
type Device struct {
	HostPath          string `codec:"host_path"`
	ContainerPath     string `codec:"container_path"`
	CgroupPermissions string `codec:"cgroup_permissions"` // of r, w and m; empty means all
}

// Mount is one `mount` block.
type Mount struct {
	Type          string        `codec:"type"` // volume, bind or tmpfs
	Target        string        `codec:"target"`
	Source        string        `codec:"source"`
	ReadOnly      bool          `codec:"readonly"`
	BindOptions   BindOptions   `codec:"bind_options"`
	TmpfsOptions  TmpfsOptions  `codec:"tmpfs_options"`
	VolumeOptions VolumeOptions `codec:"volume_options"`
}

// BindOptions of a mount of type bind.
type BindOptions struct {
	Propagation string `codec:"propagation"`
}

// TmpfsOptions of a mount of type tmpfs.
type TmpfsOptions struct {
	SizeBytes int64 `codec:"size"`
	Mode      int   `codec:"mode"`
}

// VolumeOptions of a mount of type volume.
type VolumeOptions struct {
	NoCopy       bool               `codec:"no_copy"`
	Labels       hclutils.MapStrStr `codec:"labels"`
	DriverConfig VolumeDriver       `codec:"driver_config"`
}

// VolumeDriver names the driver that makes a volume.
type VolumeDriver struct {
	Name    string             `codec:"name"`
	Options hclutils.MapStrStr `codec:"options"`
}

// Logging is Docker's log driver for the container. Nomad reads a task's logs
// through Docker, so a driver that cannot be read leaves `nomad alloc logs` empty.
type Logging struct {
	Type   string             `codec:"type"`
	Driver string             `codec:"driver"` // older name of type
	Config hclutils.MapStrStr `codec:"config"`
}

// Mounts are the blocks of both spellings.
func (c *TaskConfig) Mounts() []Mount {
	return append(append([]Mount(nil), c.Mount...), c.MountsList...)
}

// DecodeTask reads the job's config and checks what needs nothing but the
// config itself.
func DecodeTask(task *drivers.TaskConfig) (*TaskConfig, error) {
	var c TaskConfig
	if err := task.DecodeDriverConfig(&c); err != nil {
		return nil, fmt.Errorf("cannot read the config block of task %q: %w", task.Name, err)
	}
	c.Image = strings.TrimPrefix(c.Image, "https://")
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &c, nil
}

// PullLimit is the task's own, or else the plugin's.
func (c *TaskConfig) PullLimit(plugin time.Duration) time.Duration {
	if d, err := quantity.Duration(c.ImagePullTimeout); err == nil && d > 0 {
		return d
	}
	return plugin
}
