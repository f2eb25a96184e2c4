// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/hashicorp/nomad/drivers/shared/capabilities"

	"nomad-gpu-mem/driver/config"
)

// security sets privileges, capabilities and the runtime.
func (b *builder) security() error {
	c := b.Job
	if err := b.checkPrivileged(); err != nil {
		return err
	}
	b.host.Privileged = c.Privileged
	b.host.ReadonlyRootfs = c.ReadonlyRootfs
	b.host.GroupAdd = c.GroupAdd
	add, drop, err := capabilities.Delta(capabilities.DockerDefaults(), b.Settings.AllowCaps, c.CapAdd, c.CapDrop)
	if err != nil {
		return fmt.Errorf("config.cap_add: %w; the client's allow_caps decides", err)
	}
	b.host.CapAdd, b.host.CapDrop = add, drop
	if err := b.securityOptions(); err != nil {
		return err
	}
	b.host.Runtime, err = b.RuntimeName()
	return err
}

func (b *builder) checkPrivileged() error {
	switch {
	case !b.Job.Privileged:
		return nil
	case !b.Settings.AllowPrivileged:
		return fmt.Errorf("config.privileged: this client runs no privileged tasks; its operator may set allow_privileged")
	case b.HasGPU() && !b.Settings.AllowPrivilegedGPU:
		return fmt.Errorf("config.privileged together with GPU memory: a privileged container sees every GPU of the node, " +
			"whatever was booked; drop one of the two, or have the operator set allow_privileged_gpu")
	}
	return nil
}

// RuntimeName returns the container's runtime, or "" for the engine's default. Tasks that get GPUs by the NVIDIA runtime or
// observe GPUs have that one; no other task does.
func (in *Input) RuntimeName() (string, error) {
	asked, nvidia := in.Job.Runtime, in.Settings.NvidiaRuntime
	if in.HasGPU() && in.Injection == config.ByCDI {
		if asked == "" || asked == nvidia { // what the job wants of it, CDI does
			return in.PlainRuntime, nil
		}
		return asked, in.checkRuntime(asked)
	}
	switch {
	case in.HasGPU() && asked != "" && asked != nvidia:
		return "", fmt.Errorf("conflicting runtime requests: gpu runtime %q conflicts with task runtime %q; remove config.runtime", nvidia, asked)
	case in.HasGPU() && !in.Settings.AllowsNvidiaRuntime():
		return "", fmt.Errorf("requested runtime %q is not allowed; the client's allow_runtimes has %q", nvidia, in.Settings.AllowRuntimes)
	case in.HasGPU():
		return nvidia, nil
	case asked != "" && asked == nvidia:
		return asked, in.checkObserver()
	}
	return asked, in.checkRuntime(asked)
}

// checkRuntime refuses a runtime that the operator does not allow.
func (in *Input) checkRuntime(asked string) error {
	if asked != "" && !slices.Contains(in.Settings.AllowRuntimes, asked) {
		return fmt.Errorf("requested runtime %q is not allowed; the client's allow_runtimes has %q", asked, in.Settings.AllowRuntimes)
	}
	return nil
}

// namespaces sets the modes in which the container shares a namespace. Those that
// leave the container need a client that runs privileged tasks, or that lists them.
func (b *builder) namespaces() error {
	c, allowed := b.Job, b.Settings.AllowedModes
	for _, ns := range []struct {
		key, mode, name string
		allowed         []string
	}{
		{"ipc_mode", c.IPCMode, "ipc", allowed.IPC},
		{"pid_mode", c.PIDMode, "pid", allowed.PID},
		{"uts_mode", c.UTSMode, "uts", allowed.UTS},
		{"userns_mode", c.UsernsMode, "userns", allowed.Userns},
		{"cgroupns", c.Cgroupns, "cgroupns", allowed.Cgroupns},
		{"network_mode", b.networkOfAnother(), "network", allowed.Network},
	} {
		if !ownNamespace(ns.mode) && !b.Settings.AllowPrivileged && !matchesAny(ns.allowed, ns.mode) {
			return fmt.Errorf("config.%s = %q leaves the container: this client allows it only with allow_privileged "+
				"or a matching entry in allowed_modes.%s", ns.key, ns.mode, ns.name)
		}
	}
	b.host.IpcMode = container.IpcMode(c.IPCMode)
	b.host.PidMode = container.PidMode(c.PIDMode)
	b.host.UTSMode = container.UTSMode(c.UTSMode)
	b.host.UsernsMode = container.UsernsMode(c.UsernsMode)
	b.host.CgroupnsMode = container.CgroupnsMode(c.Cgroupns)
	return nil
}

// networkOfAnother is the job's network mode if it joins the network of a container of
// another allocation, and "" otherwise. The names of an allocation's containers end with
// its ID, whichever of the two drivers made them; no other allocation can have such a name.
func (b *builder) networkOfAnother() string {
	name, joins := strings.CutPrefix(b.Job.NetworkMode, "container:")
	alloc := b.Task.AllocID
	if !joins || strings.HasSuffix(name, "_"+alloc) || strings.HasSuffix(name, "-"+alloc) {
		return ""
	}
	return b.Job.NetworkMode
}

// ownNamespace reports whether the mode gives the container a namespace of its own. With
// "shareable" others can join it, by their own mode.
func ownNamespace(mode string) bool {
	return slices.Contains([]string{"", "private", "none", "shareable"}, mode)
}
