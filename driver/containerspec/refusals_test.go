// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

// Every refusal says which key it is about.
func TestContainerRefusals(t *testing.T) {
	t.Parallel()
	gpu := []allocator.Booking{slice(gpuA, 1)}
	for _, c := range []struct {
		name, hcl, config string
		bookings          []allocator.Booking
		want              string
	}{
		{"privileged", `privileged = true`, ``, nil, "config.privileged"},
		{"privileged with a slice", `privileged = true`, `allow_privileged = true`, gpu, "sees every GPU of the node"},
		{"nvidia runtime without a slice", `runtime = "nvidia"`, ``, nil, `config.runtime = "nvidia"`},
		{"other runtime with a slice", `runtime = "runsc"`, ``, gpu, `gpu runtime "nvidia" conflicts with task runtime "runsc"`},
		{"runtime not allowed", `runtime = "kata"`, ``, nil, `requested runtime "kata" is not allowed`},
		{"runtime of GPUs not allowed", ``, `allow_runtimes = ["runc"]`, gpu, `requested runtime "nvidia" is not allowed`},
		{"capability", `cap_add = ["SYS_ADMIN"]`, ``, nil, "config.cap_add"},
		{"host pid", `pid_mode = "host"`, ``, nil, `config.pid_mode = "host"`},
		{"another's ipc", `ipc_mode = "container:x"`, `allowed_modes { ipc = ["host"] }`, nil, `config.ipc_mode = "container:x"`},
		{"host uts", `uts_mode = "host"`, ``, nil, "config.uts_mode"},
		{"host userns", `userns_mode = "host"`, ``, nil, "config.userns_mode"},
		{"host cgroups", `cgroupns = "host"`, ``, nil, `config.cgroupns = "host"`},
		{"cgroups that can be written", `security_opt = ["writable-cgroups"]`, ``, nil, `config.security_opt "writable-cgroups"`},
		{"another's network", `network_mode = "container:x"`, ``, nil, `config.network_mode = "container:x"`},
		{"seccomp file of the host", `security_opt = ["seccomp=/etc/hostname"]`, ``, nil, "volumes are not enabled"},
		{"ulimit", `ulimit { nofile = "many" }`, ``, nil, "config.ulimit nofile"},
		{"pids", `pids_limit = 100`, `pids_limit = 10`, nil, "config.pids_limit of 100"},
		{"memory", `memory_hard_limit = 100`, ``, nil, "config.memory_hard_limit of 100 MB"},
		{"port_map", `port_map { http = 80 }`, ``, nil, "config.port_map: Trying to map ports but no network interface is available"},
		{"host path", `volumes = ["/etc:/x"]`, ``, nil, "volumes are not enabled"},
		{"path that climbs out", `volumes = ["../../x:/x"]`, ``, nil, "volumes are not enabled"},
		{"volume", `volumes = ["/single"]`, ``, nil, "source:target"},
		{"volume mode", `volumes = ["local:/x:nonsense"]`, ``, nil, `mode "nonsense" is not known`},
		{"relative target", `volumes = ["local:x"]`, ``, nil, `target "x" is not an absolute path`},
		{"relative target of a mount", "mount {\n type = \"bind\"\n source = \"local\"\n target = \"x\"\n}", ``, nil, `target "x" is not`},
		{"propagation", "mount {\n type = \"bind\"\n source = \"local\"\n target = \"/x\"\n bind_options { propagation = \"up\" }\n}", ``, nil, `propagation "up"`},
		{"tmpfs size", "mount {\n type = \"tmpfs\"\n target = \"/x\"\n tmpfs_options { size = -1 }\n}", ``, nil, "tmpfs_options.size -1"},
		{"volume driver", `volume_driver = "pxd"`, ``, nil, "config.volume_driver"},
		{"named volume", `mount { target = "/v" }`, ``, nil, "volumes are not enabled"},
		{"bind of the host", "mount {\n type = \"bind\"\n source = \"/etc\"\n target = \"/x\"\n}", ``, nil, "volumes are not enabled"},
		{"tmpfs with a source", "mount {\n type = \"tmpfs\"\n source = \"x\"\n target = \"/x\"\n}", ``, nil, "a tmpfs has no source"},
		{"GPU by a mount", `volumes = ["/dev/null:/var/run/nvidia-container-devices/GPU-bbbb"]`, `volumes { enabled = true }`, gpu, "GPUs are given by device blocks only"},
		{"GPU by a mount, other spelling", `volumes = ["/dev/null:/run/x/../nvidia-container-devices/all"]`, `volumes { enabled = true }`, nil, "GPUs are given by device blocks only"},
		{"GPU by a mount block", "mount {\n type = \"bind\"\n source = \"/dev/null\"\n target = \"/var/run/nvidia-container-devices/cdi/nvidia.com/gpu=all\"\n}", `volumes { enabled = true }`, gpu, "GPUs are given by device blocks only"},
		{"GPU node", `devices = [{ host_path = "/dev/nvidia0" }]`, ``, gpu, "GPUs are given by device blocks only"},
		{"GPU node, other spelling", `devices = [{ host_path = "/dev/../dev/nvidiactl" }]`, ``, nil, "GPUs are given by device blocks only"},
		{"all devices", `devices = [{ host_path = "/" }]`, ``, nil, "GPUs are given by device blocks only"},
		{"GPU node that the operator allows", `devices = [{ host_path = "/dev/nvidia0" }]`, `allowed_devices = ["/dev/*"]`, nil, "GPUs are given by device blocks only"},
		{"kernel's messages", `devices = [{ host_path = "/dev/kmsg" }]`, ``, nil, "allowed_devices"},
		{"CDI name", `devices = [{ host_path = "nvidia.com/gpu=all" }]`, ``, nil, "GPUs are given by device blocks only"},
		{"device permissions", `devices = [{ host_path = "/dev/null", cgroup_permissions = "x" }]`, ``, nil, "cgroup_permissions"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := newInput(t, c.hcl, c.config, c.bookings...).Build()
			must.ErrorContains(t, err, c.want)
		})
	}
}

func TestPrivilegedSliceIfTheOperatorWants(t *testing.T) {
	t.Parallel()
	in := newInput(t, `privileged = true`, "allow_privileged = true\nallow_privileged_gpu = true", slice(gpuA, 1))
	spec := build(t, in)
	must.True(t, spec.Host.Privileged)
	must.SliceContains(t, spec.Config.Env, "CUDA_VISIBLE_DEVICES=GPU-aaaa")
}

// A link that the task made in an earlier run must not open the host to the next.
func TestLinksOutOfTheAllocationAreRefused(t *testing.T) {
	t.Parallel()
	for name, target := range map[string]string{"existing": "/etc", "dangling": "/nowhere/at/all"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := newInput(t, `volumes = ["local/link/sub:/x"]`, `volumes { enabled = true }`)
			must.NoError(t, os.Symlink(target, filepath.Join(in.Task.TaskDir().LocalDir, "link")))
			_, _, err := in.Build()
			must.ErrorContains(t, err, "it leaves the allocation's directory")
		})
	}
	in := newInput(t, `volumes = ["local/inner/sub:/x"]`, ``)
	must.NoError(t, os.Symlink("real", filepath.Join(in.Task.TaskDir().LocalDir, "inner")))
	must.NoError(t, os.Mkdir(filepath.Join(in.Task.TaskDir().LocalDir, "real"), 0o755))
	must.True(t, strings.HasSuffix(build(t, in).Host.Binds[4], "local/real/sub:/x"))
}

// That includes the directories that every task has mounted.
func TestLinksInThePlaceOfTheTaskDirectoriesAreRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"alloc", "app/local", "app/secrets"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := newInput(t, ``, ``)
			path := filepath.Join(in.Task.AllocDir, name)
			must.NoError(t, os.RemoveAll(path))
			must.NoError(t, os.Symlink("/etc", path))
			_, _, err := in.Build()
			must.ErrorContains(t, err, "is a link")
		})
	}
}

// The container with the group's network has a name, too.
func TestTaskNamedLikeTheSandboxIsRefused(t *testing.T) {
	t.Parallel()
	in := newInput(t, ``, ``)
	in.Task.Name = "gpu-docker_sandbox"
	_, _, err := in.Build()
	must.ErrorContains(t, err, "rename the task")
	in = newInput(t, ``, ``)
	in.Task.Name = "gpu-docker/sandbox"
	_, _, err = in.Build()
	must.ErrorContains(t, err, "rename the task")
}
