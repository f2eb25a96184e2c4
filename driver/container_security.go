package driver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/hashicorp/nomad/drivers/shared/capabilities"
)

// security sets privileges, capabilities and the runtime.
func (b *blueprint) security() error {
	c := b.job
	if err := b.checkPrivileged(); err != nil {
		return err
	}
	b.host.Privileged = c.Privileged
	b.host.ReadonlyRootfs = c.ReadonlyRootfs
	b.host.GroupAdd = c.GroupAdd
	add, drop, err := capabilities.Delta(capabilities.DockerDefaults(), b.settings.AllowCaps, c.CapAdd, c.CapDrop)
	if err != nil {
		return fmt.Errorf("config.cap_add: %w; the client's allow_caps decides", err)
	}
	b.host.CapAdd, b.host.CapDrop = add, drop
	if b.host.SecurityOpt, err = b.securityOptions(); err != nil {
		return err
	}
	b.host.Runtime, err = b.runtime()
	return err
}

func (b *blueprint) checkPrivileged() error {
	switch {
	case !b.job.Privileged:
		return nil
	case !b.settings.AllowPrivileged:
		return fmt.Errorf("config.privileged: this client runs no privileged tasks; its operator may set allow_privileged")
	case b.hasGPU() && !b.settings.AllowPrivilegedGPU:
		return fmt.Errorf("config.privileged together with GPU memory: a privileged container sees every GPU of the node, " +
			"whatever was booked; drop one of the two, or have the operator set allow_privileged_gpu")
	}
	return nil
}

// runtime is the NVIDIA one for tasks that hold GPU memory, and never for others.
func (b *blueprint) runtime() (string, error) {
	asked, nvidia := b.job.Runtime, b.settings.NvidiaRuntime
	switch {
	case b.hasGPU() && asked != "" && asked != nvidia:
		return "", fmt.Errorf("conflicting runtime requests: gpu runtime %q conflicts with task runtime %q; remove config.runtime", nvidia, asked)
	case b.hasGPU() && !b.settings.allowsNvidiaRuntime():
		return "", fmt.Errorf("requested runtime %q is not allowed; the client's allow_runtimes has %q", nvidia, b.settings.AllowRuntimes)
	case b.hasGPU():
		return nvidia, nil
	case asked != "" && asked == nvidia:
		return "", fmt.Errorf(`config.runtime = %q is for tasks with a device block "nvidia/gpu-mem": add one, or remove the runtime`, asked)
	}
	if asked != "" && !slices.Contains(b.settings.AllowRuntimes, asked) {
		return "", fmt.Errorf("requested runtime %q is not allowed; the client's allow_runtimes has %q", asked, b.settings.AllowRuntimes)
	}
	return asked, nil
}

// allowsNvidiaRuntime reports whether tasks may have GPUs by the NVIDIA runtime. In
// allow_runtimes it stands under the name that it has by default, or under its own.
func (s settings) allowsNvidiaRuntime() bool {
	return slices.Contains(s.AllowRuntimes, defaultNvidiaRuntime) || slices.Contains(s.AllowRuntimes, s.NvidiaRuntime)
}

const defaultNvidiaRuntime = "nvidia"

// mostOfProfile is what a seccomp profile may take, in bytes. Docker's own has 20 KB.
const mostOfProfile = 1 << 20

// securityOptions inlines a seccomp profile given as a file, since Docker's API takes
// the profile itself. The file is read with this plugin's rights, hence only from
// where the task may mount from. Docker takes "key:value" too, of old.
func (b *blueprint) securityOptions() ([]string, error) {
	var options []string
	for _, option := range b.job.SecurityOpt {
		key, value, found := strings.Cut(option, "=")
		if !found {
			key, value, _ = strings.Cut(option, ":")
		}
		if key != "seccomp" || value == "" || value == "unconfined" || value == "builtin" {
			options = append(options, option)
			continue
		}
		profile, err := b.paths().read(value, mostOfProfile)
		if err != nil {
			return nil, fmt.Errorf("config.security_opt %q: %w", option, err)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, profile); err != nil {
			return nil, fmt.Errorf("config.security_opt %q is not JSON: %w", option, err)
		}
		options = append(options, "seccomp="+compact.String())
	}
	return options, nil
}

// namespaces sets the modes in which the container shares a namespace. Those that
// leave the container need a client that runs privileged tasks, or that lists them.
func (b *blueprint) namespaces() error {
	c, allowed := b.job, b.settings.AllowedModes
	for _, ns := range []struct {
		key, mode string
		allowed   []string
	}{
		{"ipc_mode", c.IPCMode, allowed.IPC},
		{"pid_mode", c.PIDMode, allowed.PID},
		{"uts_mode", c.UTSMode, allowed.UTS},
		{"userns_mode", c.UsernsMode, allowed.Userns},
	} {
		if !ownNamespace(ns.mode) && !b.settings.AllowPrivileged && !matchesAny(ns.allowed, ns.mode) {
			return fmt.Errorf("config.%s = %q leaves the container: this client allows it only with allow_privileged "+
				"or a matching entry in allowed_modes", ns.key, ns.mode)
		}
	}
	b.host.IpcMode = container.IpcMode(c.IPCMode)
	b.host.PidMode = container.PidMode(c.PIDMode)
	b.host.UTSMode = container.UTSMode(c.UTSMode)
	b.host.UsernsMode = container.UsernsMode(c.UsernsMode)
	b.host.CgroupnsMode = container.CgroupnsMode(c.Cgroupns)
	return nil
}

// ownNamespace reports whether the mode keeps the container to itself. "shareable"
// lets others in, by their own mode.
func ownNamespace(mode string) bool {
	return slices.Contains([]string{"", "private", "none", "shareable"}, mode)
}
