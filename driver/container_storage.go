package driver

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/mount"
	"github.com/hashicorp/nomad/client/allocdir"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/plugins/drivers"
)

// storage puts host paths, volumes and the allocation's directories into the
// container. Binds and mounts are kept apart, as they are in Docker: it creates a
// missing source of a bind and refuses one of a mount.
func (b *blueprint) storage() error {
	if err := b.allocationDirs(); err != nil {
		return err
	}
	for _, volume := range b.job.Volumes {
		bind, err := b.volume(volume)
		if err != nil {
			return fmt.Errorf("config.volumes %q: %w", volume, err)
		}
		b.host.Binds = append(b.host.Binds, bind)
	}
	b.host.VolumeDriver = b.job.VolumeDriver
	if b.host.VolumeDriver != "" && !b.settings.Volumes.Enabled {
		return fmt.Errorf("config.volume_driver = %q: volumes are not enabled on this client", b.host.VolumeDriver)
	}
	for _, m := range b.job.Mounts() {
		dockerMount, err := b.mount(m)
		if err != nil {
			return fmt.Errorf("config.mount of %q: %w", m.Target, err)
		}
		b.host.Mounts = append(b.host.Mounts, dockerMount)
	}
	for _, m := range slices.Concat(b.task.Mounts, b.files) {
		if err := checkTarget(m.TaskPath); err != nil {
			return err
		}
		b.host.Mounts = append(b.host.Mounts, nomadMount(m))
	}
	return nil
}

// allocationDirs are the directories that Nomad promises to every task. A job can mount
// what they lie in, and a task then put links in their place.
func (b *blueprint) allocationDirs() error {
	dirs := b.task.TaskDir()
	for _, dir := range []struct{ source, target string }{
		{dirs.SharedAllocDir, allocdir.SharedAllocContainerPath},
		{dirs.LocalDir, allocdir.TaskLocalContainerPath},
		{dirs.SecretsDir, allocdir.TaskSecretsContainerPath},
	} {
		if _, err := b.paths().source(dir.source); err != nil {
			return fmt.Errorf("cannot mount the task's directory at %s: %w", dir.target, err)
		}
		b.host.Binds = append(b.host.Binds, b.bind(dir.source, dir.target, ""))
		b.guardLogs(dir.source, dir.target)
	}
	return nil
}

// volume turns "source:target[:mode]" into a bind. With a volume driver the source
// is the name of a volume.
func (b *blueprint) volume(text string) (string, error) {
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
	if err := checkMode(mode); err != nil {
		return "", err
	}
	if b.job.VolumeDriver != "" {
		return b.bind(filepath.Clean(source), target, mode), nil
	}
	source, err := b.paths().source(source)
	if err != nil {
		return "", err
	}
	if modes := strings.Split(mode, ","); b.guardLogs(source, target) && !slices.Contains(modes, "ro") {
		if slices.Contains(modes, "rw") {
			return "", errLogs
		}
		mode = strings.TrimSuffix("ro,"+mode, ",")
	}
	return b.bind(source, target, mode), nil
}

// checkMode knows the comma-separated modes of a bind.
func checkMode(modes string) error {
	for mode := range strings.SplitSeq(modes, ",") {
		switch mode {
		case "ro", "rw", "z", "Z", "nocopy", "consistent", "cached", "delegated":
		case "":
			if modes != "" {
				return fmt.Errorf("mode %q has an empty part", modes)
			}
		default:
			if err := checkPropagation(mode); err != nil {
				return fmt.Errorf("mode %q is not known: such as ro, rw, z or a propagation", mode)
			}
		}
	}
	return nil
}

func checkPropagation(propagation string) error {
	switch mount.Propagation(propagation) {
	case "", mount.PropagationPrivate, mount.PropagationRPrivate, mount.PropagationShared, mount.PropagationRShared,
		mount.PropagationSlave, mount.PropagationRSlave:
		return nil
	}
	return fmt.Errorf("propagation %q is none of private, shared and slave, with or without an r before it", propagation)
}

// bind joins a bind's parts; the SELinux label is one of the comma-separated modes.
func (b *blueprint) bind(source, target, mode string) string {
	var modes []string
	for _, m := range []string{mode, b.settings.Volumes.SelinuxLabel} {
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

func (b *blueprint) mount(m Mount) (mount.Mount, error) {
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
		var err error
		if out.Source, err = b.paths().source(m.Source); err != nil {
			return out, err
		}
		if err := checkPropagation(m.BindOptions.Propagation); err != nil {
			return out, err
		}
		out.ReadOnly = b.guardLogs(out.Source, m.Target) || m.ReadOnly
		if m.BindOptions.Propagation != "" {
			out.BindOptions = &mount.BindOptions{Propagation: mount.Propagation(m.BindOptions.Propagation)}
		}
	case mount.TypeVolume:
		if !b.settings.Volumes.Enabled {
			return out, fmt.Errorf("volumes are not enabled on this client; cannot mount volume %q", m.Source)
		}
		out.VolumeOptions = m.VolumeOptions.docker()
	default:
		return out, fmt.Errorf("type %q is none of volume, bind and tmpfs", m.Type)
	}
	return out, nil
}

func (v VolumeOptions) docker() *mount.VolumeOptions {
	out := &mount.VolumeOptions{NoCopy: v.NoCopy, Labels: v.Labels}
	if v.DriverConfig.Name != "" || len(v.DriverConfig.Options) > 0 {
		out.DriverConfig = &mount.Driver{Name: v.DriverConfig.Name, Options: v.DriverConfig.Options}
	}
	return out
}

// nomadMount is a mount that Nomad itself asks for: volume_mount blocks, device
// plugins, and the files of a group's network.
func nomadMount(m *drivers.MountConfig) mount.Mount {
	propagation := mount.PropagationRPrivate
	switch m.PropagationMode {
	case structs.VolumeMountPropagationHostToTask:
		propagation = mount.PropagationRSlave
	case structs.VolumeMountPropagationBidirectional:
		propagation = mount.PropagationRShared
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
func (o *order) hasFile(target string) bool {
	return slices.ContainsFunc(o.files, func(m *drivers.MountConfig) bool { return m.TaskPath == target })
}
