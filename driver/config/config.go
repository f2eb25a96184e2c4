// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package config has what people configure of the task driver: the operator's plugin block and a job's config block, with
// their schemas and all checks that need neither Docker nor the node.
//
//	config.go     the plugin block, and its Settings: checked, in Go's types
//	gpu.go        how GPUs reach a container
//	observer.go   jobs that may see all GPUs
//	spec.go       schema of the plugin block
//	task.go       a job's config block
//	taskcheck.go  what is checked of it
//	taskspec.go   its schema
package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/logpipe"
	"nomad-gpu-mem/internal/quantity"
	"nomad-gpu-mem/internal/tableconfig"
)

// Config is the operator's plugin block. Keys that Nomad's Docker driver also
// has mean the same here.
type Config struct {
	Endpoint string       `codec:"endpoint"` // empty: DOCKER_HOST and its companions, then the local socket
	TLS      TLS          `codec:"tls"`
	Auth     RegistryAuth `codec:"auth"`

	NvidiaRuntime      string             `codec:"nvidia_runtime"`       // Docker runtime of tasks that hold GPU memory
	GPUInjection       string             `codec:"gpu_injection"`        // how GPUs reach a container: auto, runtime or cdi
	AllowPrivilegedGPU bool               `codec:"allow_privileged_gpu"` // let a privileged task hold a slice, though it sees every GPU
	GPUObserver        GPUObserver        `codec:"gpu_observer"`         // jobs that see all GPUs and hold none
	ClaimTimeout       string             `codec:"claim_timeout"`        // how long a start waits for units held by a stopping task
	StateDir           string             `codec:"state_dir"`            // absolute; where claims still to be released are remembered
	Table              tableconfig.Config `codec:"table"`

	AllowPrivileged   bool         `codec:"allow_privileged"`
	AllowCaps         []string     `codec:"allow_caps"`
	AllowRuntimes     []string     `codec:"allow_runtimes"`
	AllowedModes      AllowedModes `codec:"allowed_modes"`
	AllowedDevices    []string     `codec:"allowed_devices"` // globs of paths below /dev, besides the harmless ones
	Volumes           Volumes      `codec:"volumes"`
	AllowWritableLogs bool         `codec:"allow_writable_logs"` // let tasks write to alloc/logs, where Nomad's collector writes
	PidsLimit         int64        `codec:"pids_limit"`          // default and maximum of the tasks' own
	OOMScoreAdj       int          `codec:"oom_score_adj"`

	ExtraLabels          []string       `codec:"extra_labels"`  // globs of label names, such as "job_*"
	CompatLabels         bool           `codec:"compat_labels"` // set the labels of Nomad's Docker driver as well; implied by its name
	Logging              DefaultLogging `codec:"logging"`
	DisableLogCollection bool           `codec:"disable_log_collection"`

	InfraImage              string `codec:"infra_image"` // pause image that holds a group's network
	InfraImagePullTimeout   string `codec:"infra_image_pull_timeout"`
	ImagePullTimeout        string `codec:"image_pull_timeout"`
	PullActivityTimeout     string `codec:"pull_activity_timeout"`
	ContainerExistsAttempts int    `codec:"container_exists_attempts"`

	GC GC `codec:"gc"`

	WindowsAllowInsecureContainerAdmin bool `codec:"windows_allow_insecure_container_admin"` // no effect
}

// TLS holds the files for an endpoint that wants them.
type TLS struct {
	Cert string `codec:"cert"`
	Key  string `codec:"key"`
	CA   string `codec:"ca"`
}

// RegistryAuth says where logins for registries come from.
type RegistryAuth struct {
	Config string `codec:"config"` // path of a Docker config.json
	Helper string `codec:"helper"` // suffix of a docker-credential-<helper> program
}

// AllowedModes are globs of namespace modes that unprivileged clients allow.
type AllowedModes struct {
	PID      []string `codec:"pid"`
	IPC      []string `codec:"ipc"`
	Userns   []string `codec:"userns"`
	UTS      []string `codec:"uts"`
	Cgroupns []string `codec:"cgroupns"`
	Network  []string `codec:"network"` // of "container:..." that name another allocation's
}

// Volumes opens the host's paths and Docker's volumes to jobs.
type Volumes struct {
	Enabled      bool   `codec:"enabled"`
	SelinuxLabel string `codec:"selinuxlabel"`
	StageSources *bool  `codec:"stage_sources"` // mount what was checked, by way of state_dir; nil: true
}

// DefaultLogging is the log driver of tasks that name none.
type DefaultLogging struct {
	Type   string            `codec:"type"`
	Config map[string]string `codec:"config"`
}

// GC says what is cleared away after a task.
type GC struct {
	Image      bool     `codec:"image"`
	ImageDelay string   `codec:"image_delay"`
	Container  bool     `codec:"container"`
	Dangling   Dangling `codec:"dangling_containers"`
}

// Dangling governs the removal of this driver's containers that no task owns.
type Dangling struct {
	Enabled       bool   `codec:"enabled"`
	DryRun        bool   `codec:"dry_run"`
	Period        string `codec:"period"`
	CreationGrace string `codec:"creation_grace"`
}

// Settings is a Config whose values are known to be good, in Go's types.
type Settings struct {
	Config
	ClaimWait      time.Duration
	PullLimit      time.Duration
	PullIdle       time.Duration
	InfraPullLimit time.Duration
	ImageDelay     time.Duration
	DanglingPeriod time.Duration
	DanglingGrace  time.Duration
}

// Settings checks the configuration. Its error names the key and the value, since
// it is all that an operator sees when the agent refuses to start.
func (c Config) Settings() (Settings, error) {
	s := Settings{Config: c}
	for _, d := range []struct {
		key, value string
		least      time.Duration
		empty      time.Duration // what "" means, as to Nomad's driver; 0: it is invalid
		to         *time.Duration
	}{
		{"claim_timeout", c.ClaimTimeout, 0, 0, &s.ClaimWait},
		{"image_pull_timeout", c.ImagePullTimeout, time.Second, 5 * time.Minute, &s.PullLimit},
		{"pull_activity_timeout", c.PullActivityTimeout, time.Minute, 2 * time.Minute, &s.PullIdle},
		{"infra_image_pull_timeout", c.InfraImagePullTimeout, time.Second, 5 * time.Minute, &s.InfraPullLimit},
		{"gc.image_delay", c.GC.ImageDelay, 0, 3 * time.Minute, &s.ImageDelay},
		{"gc.dangling_containers.period", c.GC.Dangling.Period, time.Second, 5 * time.Minute, &s.DanglingPeriod},
		{"gc.dangling_containers.creation_grace", c.GC.Dangling.CreationGrace, time.Minute, 5 * time.Minute, &s.DanglingGrace},
	} {
		if d.value == "" && d.empty > 0 {
			*d.to = d.empty
			continue
		}
		value, err := quantity.DurationFrom(d.value, d.least)
		if err != nil {
			return Settings{}, fmt.Errorf("%s: %w", d.key, err)
		}
		*d.to = value
	}
	s.Table = c.Table.WithDefaults()
	if len(c.GPUObserver.Capabilities) == 0 {
		s.GPUObserver.Capabilities = []string{"utility"}
	}
	if len(c.Logging.Type) == 0 && len(c.Logging.Config) == 0 {
		s.Logging = DefaultLogging{Type: "json-file", Config: map[string]string{"max-file": "2", "max-size": "2m"}}
	}
	return s, s.validate()
}

// Engine is what the Docker client needs to know.
func (s Settings) Engine() docker.Config {
	return docker.Config{
		Endpoint:       s.Endpoint,
		Cert:           s.TLS.Cert,
		Key:            s.TLS.Key,
		CA:             s.TLS.CA,
		AuthConfigFile: s.Auth.Config,
		AuthHelper:     s.Auth.Helper,
		InfraImage:     s.InfraImage,
		InfraPinFile:   filepath.Join(s.StateDir, "infra_image.json"),
		SpoolDir:       s.StateDir,
	}
}

// StagesSources reports whether tasks get what was checked of a source, and not what its path names later.
func (s Settings) StagesSources() bool {
	return s.Volumes.StageSources == nil || *s.Volumes.StageSources
}

func (s *Settings) validate() error {
	switch {
	case s.NvidiaRuntime == "":
		return fmt.Errorf(`nvidia_runtime = "" names no runtime: leave the key out for "nvidia"`)
	case !slices.Contains([]Injection{ByEither, ByRuntime, ByCDI}, Injection(s.GPUInjection)):
		return fmt.Errorf(`gpu_injection = %q is not one of "auto", "runtime" and "cdi"`, s.GPUInjection)
	case !filepath.IsAbs(s.StateDir):
		return fmt.Errorf("state_dir = %q is not an absolute path", s.StateDir)
	case logpipe.CheckStateDir(s.StateDir) != nil:
		return logpipe.CheckStateDir(s.StateDir)
	case s.InfraImage == "":
		return fmt.Errorf(`infra_image = "" names no image: leave the key out for the default`)
	case !isEndpoint(s.Endpoint):
		return fmt.Errorf(`endpoint = %q is not a Docker address: write it like "unix:///var/run/docker.sock" or "tcp://127.0.0.1:2376"`, s.Endpoint)
	case !slices.Contains([]string{"", "z", "Z"}, strings.TrimPrefix(s.Volumes.SelinuxLabel, ":")):
		return fmt.Errorf(`volumes.selinuxlabel = %q is neither "z" nor "Z"`, s.Volumes.SelinuxLabel)
	case s.PidsLimit < -1:
		return fmt.Errorf("pids_limit = %d is negative: use a count, or -1 for no limit", s.PidsLimit)
	case s.ContainerExistsAttempts < 1:
		return fmt.Errorf("container_exists_attempts = %d allows no attempt: the least is 1", s.ContainerExistsAttempts)
	}
	if err := checkCapabilities("allow_caps", s.AllowCaps); err != nil {
		return err
	}
	for _, pattern := range s.AllowedDevices {
		if !strings.HasPrefix(pattern, "/dev/") || filepath.Clean(pattern) != pattern {
			return fmt.Errorf(`allowed_devices has %q: write the path of a device below /dev, or a glob such as "/dev/vfio/*"`, pattern)
		}
	}
	if err := s.GPUObserver.validate(); err != nil {
		return err
	}
	if err := checkOOMScoreAdj("oom_score_adj =", s.OOMScoreAdj); err != nil {
		return err
	}
	return s.Table.Validate()
}

// Warnings are on what of the configuration has no effect, or one to beware of. builtin says whether the plugin has the name
// of Nomad's own Docker driver.
func (s *Settings) Warnings(builtin bool) (warnings []string) {
	if s.Endpoint == "" && s.TLS != (TLS{}) {
		warnings = append(warnings, "tls has no effect without endpoint: name the endpoint that it is for")
	}
	if s.WindowsAllowInsecureContainerAdmin {
		warnings = append(warnings, "windows_allow_insecure_container_admin has no effect: this driver runs on Linux only")
	}
	if s.CompatLabels && !builtin {
		warnings = append(warnings, "compat_labels needs Nomad's own Docker driver to be off on this client, or its "+
			"gc.dangling_containers: it would end every container of this driver within minutes")
	}
	return warnings
}

// isEndpoint reports whether Docker can be reached in such a way; empty means the
// default.
func isEndpoint(endpoint string) bool {
	scheme, address, found := strings.Cut(endpoint, "://")
	return endpoint == "" || found && address != "" && slices.Contains([]string{"unix", "tcp", "http", "https"}, scheme)
}
