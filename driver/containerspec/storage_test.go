// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/driver/config"
	"nomad-gpu-mem/driver/configtest"
)

// onAndOff runs a case with the host's volumes open to jobs and closed.
func onAndOff(t *testing.T, name string, run func(t *testing.T, client string, enabled bool)) {
	t.Helper()
	for client, enabled := range map[string]bool{`volumes { enabled = true }`: true, `volumes { enabled = false }`: false} {
		t.Run(name+" "+client, func(t *testing.T) {
			t.Parallel()
			run(t, client, enabled)
		})
	}
}

// With the host's volumes closed to jobs, what lies in the allocation is still open.
func TestContainerVolumePaths(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, hcl string
		host      bool   // needs the host's volumes
		want      string // ALLOC is the allocation's directory
	}{
		{"name with a plugin", "volumes = [\"test-path:/x\"]\nvolume_driver = \"nfs\"", true, "test-path:/x"},
		{"name with the local driver", "volumes = [\"test-path:/x\"]\nvolume_driver = \"local\"", true, "test-path:/x"},
		{"absolute with the local driver", "volumes = [\"/abs/path:/x\"]\nvolume_driver = \"local\"", true, "/abs/path:/x"},
		{"unclean with the local driver", "volumes = [\"/tmp/nomad/../path:/x\"]\nvolume_driver = \"local\"", true, "/tmp/path:/x"},
		{"absolute", `volumes = ["/abs/path:/x"]`, true, "/abs/path:/x"},
		{"absolute with a mode", `volumes = ["/abs/path:/x:rw"]`, true, "/abs/path:/x:rw"},
		{"relative", `volumes = ["path:/x"]`, false, "ALLOC/app/path:/x"},
		{"the task's directory", `volumes = [".:/x"]`, false, "ALLOC/app:/x:ro"},
		{"relative, beside the task", `volumes = ["../path:/x"]`, false, "ALLOC/path:/x:ro"},
		{"the allocation's directory", `volumes = ["..:/x"]`, false, "ALLOC:/x:ro"},
		{"relative, out of the allocation", `volumes = ["../../path:/x"]`, true, "ALLOC/../path:/x"},
		{"beside the allocation by its name", `volumes = ["../../ALLOCBASE2:/x"]`, true, "ALLOC2:/x"},
		{"modes", `volumes = ["path:/x:ro,Z,rslave"]`, false, "ALLOC/app/path:/x:ro,Z,rslave"},
	} {
		onAndOff(t, c.name, func(t *testing.T, client string, enabled bool) {
			in := newInput(t, ``, client)
			alloc := in.Task.AllocDir
			in.Job = configtest.Task(t, strings.ReplaceAll(c.hcl, "ALLOCBASE", filepath.Base(alloc)))
			spec, _, err := in.Build()
			if c.host && !enabled {
				must.ErrorContains(t, err, "volumes are not enabled")
				return
			}
			must.NoError(t, err)
			want := strings.Replace(c.want, "ALLOC/..", filepath.Dir(alloc), 1)
			must.SliceContains(t, spec.Host.Binds, strings.Replace(want, "ALLOC", alloc, 1))
		})
	}
}

func TestContainerMountBlocks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		host bool // needs the host's volumes
		in   config.Mount
		want mount.Mount
	}{
		{
			"volume", true, config.Mount{Type: "volume", Target: "/x", Source: "test", ReadOnly: true},
			mount.Mount{Type: "volume", Target: "/x", Source: "test", ReadOnly: true, VolumeOptions: &mount.VolumeOptions{}},
		},
		{
			"bind", false, config.Mount{Type: "bind", Target: "/x", Source: "test"},
			mount.Mount{Type: "bind", Target: "/x", Source: "ALLOC/app/test"},
		},
		{
			"absolute bind", true, config.Mount{Type: "bind", Target: "/x", Source: "/tmp/test"},
			mount.Mount{Type: "bind", Target: "/x", Source: "/tmp/test"},
		},
		{
			"bind out of the allocation", true, config.Mount{Type: "bind", Target: "/x", Source: "../../test"},
			mount.Mount{Type: "bind", Target: "/x", Source: "ALLOC/../test"},
		},
		{
			"tmpfs", false, config.Mount{Type: "tmpfs", Target: "/x", TmpfsOptions: config.TmpfsOptions{SizeBytes: 321, Mode: 0o666}},
			mount.Mount{Type: "tmpfs", Target: "/x", TmpfsOptions: &mount.TmpfsOptions{SizeBytes: 321, Mode: 0o666}},
		},
	} {
		onAndOff(t, c.name, func(t *testing.T, client string, enabled bool) {
			in := newInput(t, ``, client)
			in.Job.Mount = []config.Mount{c.in}
			spec, _, err := in.Build()
			if c.host && !enabled {
				must.ErrorContains(t, err, "volumes are not enabled")
				return
			}
			must.NoError(t, err)
			want := c.want
			want.Source = filepath.Clean(strings.Replace(want.Source, "ALLOC", in.Task.AllocDir, 1))
			if c.want.Source == "" {
				want.Source = ""
			}
			must.Eq(t, []mount.Mount{want}, spec.Host.Mounts)
		})
	}
}

// What Nomad and device plugins add comes after the job's own.
func TestContainerMountsAndDevicesOfNomad(t *testing.T) {
	t.Parallel()
	in := newInput(t, `
		devices = [{ host_path = "/dev/null", container_path = "/dev/n" }]
		mount {
		  type   = "bind"
		  source = "local"
		  target = "/own"
		}`, ``)
	in.Task.Devices = []*drivers.DeviceConfig{{HostPath: "/dev/fuse", TaskPath: "/dev/f", Permissions: "rw"}}
	in.Task.Mounts = []*drivers.MountConfig{{HostPath: "/none", TaskPath: "/none", Readonly: true}}
	for _, mode := range []string{"private", "host-to-task", "bidirectional"} {
		in.Task.Mounts = append(in.Task.Mounts, &drivers.MountConfig{HostPath: "/" + mode, TaskPath: "/" + mode, PropagationMode: mode})
	}
	host := build(t, in).Host
	must.Eq(t, []container.DeviceMapping{
		{PathOnHost: "/dev/null", PathInContainer: "/dev/n", CgroupPermissions: "rwm"},
		{PathOnHost: "/dev/fuse", PathInContainer: "/dev/f", CgroupPermissions: "rw"},
	}, host.Devices)
	propagated := func(p mount.Propagation) *mount.BindOptions { return &mount.BindOptions{Propagation: p} }
	must.Eq(t, []mount.Mount{
		{Type: "bind", Source: in.Task.TaskDir().LocalDir, Target: "/own"},
		{Type: "bind", Source: "/none", Target: "/none", ReadOnly: true, BindOptions: propagated("rprivate")},
		{Type: "bind", Source: "/private", Target: "/private", BindOptions: propagated("rprivate")},
		{Type: "bind", Source: "/host-to-task", Target: "/host-to-task", BindOptions: propagated("rslave")},
		{Type: "bind", Source: "/bidirectional", Target: "/bidirectional", BindOptions: propagated("rslave")},
	}, host.Mounts)
	in.Settings.AllowPrivileged = true
	must.Eq(t, propagated("rshared"), build(t, in).Host.Mounts[4].BindOptions)
}

func TestDevicePermissions(t *testing.T) {
	t.Parallel()
	for permissions, ok := range map[string]bool{
		"": true, "r": true, "rw": true, "rwm": true, "mr": true, "mrw": true, "q": false, "asdf": false, "rq": false,
	} {
		_, err := mappings(config.Device{HostPath: "/dev/null", CgroupPermissions: permissions}, hostDevices{root: "/"})
		must.Eq(t, ok, err == nil, must.Sprint(permissions))
	}
	_, err := mappings(config.Device{}, hostDevices{root: "/"})
	must.ErrorContains(t, err, "host_path must name")
}

// Nothing that a task has of its allocation lets it write to the logs.
func TestContainerLogsAreReadOnly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, hcl string
		want      []string // binds besides those of every task; ALLOC is the allocation's directory
		refused   bool
	}{
		{name: "beside them", hcl: `volumes = ["../alloc/data:/x"]`, want: []string{"ALLOC/alloc/data:/x"}},
		{name: "with them", hcl: `volumes = ["../alloc:/x"]`, want: []string{"ALLOC/alloc/logs:/x/logs:ro", "ALLOC/alloc:/x"}},
		{name: "far above them", hcl: `volumes = ["..:/x"]`, want: []string{"ALLOC:/x:ro"}},
		{name: "they", hcl: `volumes = ["../alloc/logs:/x"]`, want: []string{"ALLOC/alloc/logs:/x:ro"}},
		{name: "they, with a mode", hcl: `volumes = ["../alloc/logs:/x:z"]`, want: []string{"ALLOC/alloc/logs:/x:ro,z"}},
		{name: "they, read-only", hcl: `volumes = ["../alloc/logs:/x:ro"]`, want: []string{"ALLOC/alloc/logs:/x:ro"}},
		{name: "they, to be written to", hcl: `volumes = ["../alloc/logs:/x:rw"]`, refused: true},
		{name: "one of them", hcl: `volumes = ["../alloc/logs/a:/x"]`, want: []string{"ALLOC/alloc/logs/a:/x:ro"}},
		{name: "by a link", hcl: `volumes = ["local/link:/x"]`, want: []string{"ALLOC/alloc/logs:/x:ro"}},
		{name: "below a link", hcl: `volumes = ["local/link/new:/x"]`, want: []string{"ALLOC/alloc/logs/new:/x:ro"}},
		{
			name: "in a mount block", hcl: "mount {\n type = \"bind\"\n source = \"../alloc\"\n target = \"/x\"\n}",
			want: []string{"ALLOC/alloc/logs:/x/logs:ro"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in := newInput(t, c.hcl, ``)
			dirs := in.Task.TaskDir()
			must.NoError(t, os.MkdirAll(dirs.LogDir, 0o755))
			must.NoError(t, os.Symlink("../../alloc/logs", filepath.Join(dirs.LocalDir, "link")))
			spec, _, err := in.Build()
			if c.refused {
				must.ErrorIs(t, err, errLogs)
				return
			}
			must.NoError(t, err)
			var want []string
			for _, bind := range c.want {
				want = append(want, strings.ReplaceAll(bind, "ALLOC", in.Task.AllocDir))
			}
			must.Eq(t, want, spec.Host.Binds[4:])
		})
	}
	logs := newInput(t, "mount {\n type = \"bind\"\n source = \"../alloc/logs\"\n target = \"/x\"\n}", ``)
	must.True(t, build(t, logs).Host.Mounts[0].ReadOnly)
}

func TestContainerLogsIfTheOperatorWants(t *testing.T) {
	t.Parallel()
	in := newInput(t, `volumes = ["../alloc/logs:/x"]`, `allow_writable_logs = true`)
	must.Eq(t, []string{
		in.Task.AllocDir + "/alloc:/alloc", in.Task.AllocDir + "/app/local:/local", in.Task.AllocDir + "/app/secrets:/secrets",
		in.Task.AllocDir + "/alloc/logs:/x",
	}, build(t, in).Host.Binds)
}

// Nomad's driver does not look at what follows the mode.
func TestVolumeWithFurtherParts(t *testing.T) {
	t.Parallel()
	spec, remarks, err := newInput(t, `volumes = ["local:/x:ro:z"]`, ``).Build()
	must.NoError(t, err)
	must.StrHasSuffix(t, "/app/local:/x:ro", spec.Host.Binds[len(spec.Host.Binds)-1])
	must.SliceLen(t, 1, remarks)
	must.StrContains(t, remarks[0], `config.volumes "local:/x:ro:z"`)
}
