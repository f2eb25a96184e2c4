// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/mount"
	"github.com/hashicorp/nomad/client/allocdir"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/driver/config"
)

// storage puts host paths, volumes and the allocation's directories into the
// container. Binds and mounts are kept apart, as they are in Docker: it creates a
// missing source of a bind and refuses one of a mount.
func (b *builder) storage() error {
	if err := b.allocationDirs(); err != nil {
		return err
	}
	for _, volume := range b.Job.Volumes {
		bind, err := b.volume(volume)
		if err != nil {
			return fmt.Errorf("config.volumes %q: %w", volume, err)
		}
		b.host.Binds = append(b.host.Binds, bind)
	}
	b.host.VolumeDriver = b.Job.VolumeDriver
	if b.host.VolumeDriver != "" && !b.Settings.Volumes.Enabled {
		return fmt.Errorf("config.volume_driver = %q: volumes are not enabled on this client", b.host.VolumeDriver)
	}
	for _, m := range b.Job.Mounts() {
		dockerMount, err := b.mount(m)
		if err != nil {
			return fmt.Errorf("config.mount of %q: %w", m.Target, err)
		}
		b.host.Mounts = append(b.host.Mounts, dockerMount)
	}
	for _, m := range slices.Concat(b.Task.Mounts, b.Files) {
		if err := checkTarget(m.TaskPath); err != nil {
			return err
		}
		b.host.Mounts = append(b.host.Mounts, b.nomadMount(m))
	}
	return nil
}

// allocationDirs are the directories that Nomad promises to every task.
func (b *builder) allocationDirs() error {
	if err := b.checkOwnDirs(); err != nil {
		return err
	}
	dirs := b.Task.TaskDir()
	for _, dir := range []struct{ source, target string }{
		{dirs.SharedAllocDir, allocdir.SharedAllocContainerPath},
		{dirs.LocalDir, allocdir.TaskLocalContainerPath},
		{dirs.SecretsDir, allocdir.TaskSecretsContainerPath},
	} {
		b.host.Binds = append(b.host.Binds, b.bind(dir.source, dir.target, ""))
		b.coverLogs(dir.source, dir.target)
	}
	return nil
}

// volume turns "source:target[:mode]" into a bind. With a volume driver the source
// is the name of a volume.
func (b *builder) volume(text string) (string, error) {
	parts := strings.Split(text, ":")
	if len(parts) > 3 {
		b.remark("config.volumes %q: what follows the mode %q has no effect; modes are separated by commas", text, parts[2])
		parts = parts[:3]
	}
	if len(parts) < 2 || parts[0] == "" || parts[1] == "" {
		return "", fmt.Errorf(`want "source:target" or "source:target:mode"`)
	}
	source, target, mode := parts[0], parts[1], ""
	if len(parts) == 3 {
		mode = parts[2]
	}
	if err := checkTarget(target); err != nil {
		return "", err
	}
	if err := b.checkMode(mode); err != nil {
		return "", err
	}
	if b.Job.VolumeDriver != "" && !filepath.IsAbs(source) {
		return b.bind(filepath.Clean(source), target, mode), nil
	}
	source, err := b.paths().source(source)
	if err != nil {
		return "", err
	}
	if mode, err = b.restrict(text, source, mode); err != nil {
		return "", err
	}
	if !hasMode(mode, "ro") {
		b.coverLogs(source, target)
	}
	return b.bind(source, target, mode), nil
}

// restrict makes a volume read-only that must be, unless the job says rw: then it is
// refused.
func (b *builder) restrict(text, source, mode string) (string, error) {
	reason := b.readOnly(source)
	switch {
	case reason == nil || hasMode(mode, "ro"):
		return mode, nil
	case hasMode(mode, "rw"):
		return "", fmt.Errorf("rw is refused: %w", reason)
	case errors.Is(reason, errNames):
		b.remark("config.volumes %q is mounted read-only: %v", text, reason)
	}
	return strings.TrimSuffix("ro,"+mode, ","), nil
}

func hasMode(modes, mode string) bool { return slices.Contains(strings.Split(modes, ","), mode) }

// checkMode knows the comma-separated modes of a bind.
func (b *builder) checkMode(modes string) error {
	for mode := range strings.SplitSeq(modes, ",") {
		switch mode {
		case "ro", "rw", "z", "Z", "nocopy", "consistent", "cached", "delegated":
		case "":
			if modes != "" {
				return fmt.Errorf("mode %q has an empty part", modes)
			}
		default:
			if err := b.checkPropagation(mode); errors.Is(err, errShared) {
				return err
			} else if err != nil {
				return fmt.Errorf("mode %q is not known: such as ro, rw, z or a propagation", mode)
			}
		}
	}
	return nil
}

// bind joins a bind's parts; the SELinux label is one of the comma-separated modes.
func (b *builder) bind(source, target, mode string) string {
	var modes []string
	for _, m := range []string{mode, b.Settings.Volumes.SelinuxLabel} {
		if m = strings.TrimPrefix(m, ":"); m != "" {
			modes = append(modes, m)
		}
	}
	bind := source + ":" + target
	if len(modes) > 0 {
		bind += ":" + strings.Join(modes, ",")
	}
	return bind
}

func (b *builder) mount(m config.Mount) (mount.Mount, error) {
	if err := checkTarget(m.Target); err != nil {
		return mount.Mount{}, err
	}
	out := mount.Mount{Type: cmp.Or(mount.Type(m.Type), mount.TypeVolume), Source: m.Source, Target: m.Target, ReadOnly: m.ReadOnly}
	switch out.Type {
	case mount.TypeTmpfs:
		if m.Source != "" {
			return out, fmt.Errorf("a tmpfs has no source: remove source = %q", m.Source)
		}
		if m.TmpfsOptions.SizeBytes < 0 {
			return out, fmt.Errorf("tmpfs_options.size %d is negative: it is in bytes", m.TmpfsOptions.SizeBytes)
		}
		out.TmpfsOptions = &mount.TmpfsOptions{SizeBytes: m.TmpfsOptions.SizeBytes, Mode: os.FileMode(m.TmpfsOptions.Mode)}
	case mount.TypeBind:
		return b.bindMount(m, out)
	case mount.TypeVolume:
		if !b.Settings.Volumes.Enabled {
			return out, fmt.Errorf("volumes are not enabled on this client; cannot mount volume %q", m.Source)
		}
		out.VolumeOptions = volumeOptions(m.VolumeOptions)
	default:
		return out, fmt.Errorf("type %q is none of volume, bind and tmpfs", m.Type)
	}
	return out, nil
}

// bindMount completes a mount of type bind. A job cannot say that one is to be writable:
// that is the default.
func (b *builder) bindMount(m config.Mount, out mount.Mount) (mount.Mount, error) {
	var err error
	if out.Source, err = b.paths().source(m.Source); err != nil {
		return out, err
	}
	if err := b.checkPropagation(m.BindOptions.Propagation); err != nil {
		return out, err
	}
	if reason := b.readOnly(out.Source); reason != nil && !m.ReadOnly {
		out.ReadOnly = true
		if errors.Is(reason, errNames) {
			b.remark("config.mount of %q is read-only: %v", m.Target, reason)
		}
	}
	if !out.ReadOnly {
		b.coverLogs(out.Source, m.Target)
	}
	if m.BindOptions.Propagation != "" {
		out.BindOptions = &mount.BindOptions{Propagation: mount.Propagation(m.BindOptions.Propagation)}
	}
	return out, nil
}

func volumeOptions(v config.VolumeOptions) *mount.VolumeOptions {
	out := &mount.VolumeOptions{NoCopy: v.NoCopy, Labels: v.Labels}
	if v.DriverConfig.Name != "" || len(v.DriverConfig.Options) > 0 {
		out.DriverConfig = &mount.Driver{Name: v.DriverConfig.Name, Options: v.DriverConfig.Options}
	}
	return out
}

// nomadMount is a mount that Nomad itself asks for: volume_mount blocks, device
// plugins, and the files of a group's network. What is mounted in a container below a
// shared one would cover the volume on the host, for all who use it.
func (b *builder) nomadMount(m *drivers.MountConfig) mount.Mount {
	propagation := mount.PropagationRPrivate
	switch m.PropagationMode {
	case structs.VolumeMountPropagationHostToTask:
		propagation = mount.PropagationRSlave
	case structs.VolumeMountPropagationBidirectional:
		propagation = mount.PropagationRShared
		if err := b.checkPropagation(string(propagation)); err != nil {
			propagation = mount.PropagationRSlave
			b.remark("volume_mount at %q is mounted host-to-task, not bidirectional: %v", m.TaskPath, err)
		}
	}
	return mount.Mount{
		Type:        mount.TypeBind,
		Source:      m.HostPath,
		Target:      m.TaskPath,
		ReadOnly:    m.Readonly,
		BindOptions: &mount.BindOptions{Propagation: propagation},
	}
}

// hasFile reports whether a generated file takes the place of Docker's.
func (in *Input) hasFile(target string) bool {
	return slices.ContainsFunc(in.Files, func(m *drivers.MountConfig) bool { return m.TaskPath == target })
}
