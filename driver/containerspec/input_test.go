// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/configtest"
	"nomad-gpu-mem/driver/docker"
)

const allocID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"

// newInput is the input for the config block in hcl, with the settings in config.
func newInput(t *testing.T, hcl, config string, bookings ...allocator.Booking) *Input {
	t.Helper()
	s, err := configtest.Plugin(t, config).Settings()
	must.NoError(t, err)
	allocDir := t.TempDir()
	must.NoError(t, os.MkdirAll(filepath.Join(allocDir, "app", "local"), 0o755))
	return &Input{
		Task: &drivers.TaskConfig{
			ID: allocID + "/app/1", Name: "app", JobName: "job", JobID: "job-id", AllocID: allocID, AllocDir: allocDir,
			Resources: &drivers.Resources{
				NomadResources: &structs.AllocatedTaskResources{Memory: structs.AllocatedMemoryResources{MemoryMB: 256}},
				LinuxResources: &drivers.LinuxResources{CPUShares: 500, PercentTicks: 0.25},
			},
		},
		Job:      configtest.Task(t, hcl),
		Settings: s,
		Bookings: bookings,
		Image:    docker.Image{ID: "sha256:1234"},
	}
}

func build(t *testing.T, in *Input) docker.Spec {
	t.Helper()
	spec, _, err := in.Build()
	must.NoError(t, err)
	return spec
}

func TestContainerProcess(t *testing.T) {
	t.Parallel()
	in := newInput(t, `
		command = "serve"
		args = ["-v"]
		entrypoint = ["/init"]
		work_dir = "/srv"
		tty = true
		interactive = true
		init = true
		healthchecks { disable = true }`, ``)
	in.Task.User = "www-data"
	spec := build(t, in)
	must.Eq(t, "app_"+allocID, spec.Name)
	must.Eq(t, "sha256:1234", spec.Config.Image)
	must.Eq(t, []string{"serve", "-v"}, []string(spec.Config.Cmd))
	must.Eq(t, []string{"/init"}, []string(spec.Config.Entrypoint))
	must.Eq(t, "www-data", spec.Config.User)
	must.Eq(t, "/srv", spec.Config.WorkingDir)
	must.True(t, spec.Config.Tty)
	must.True(t, spec.Config.OpenStdin)
	must.True(t, *spec.Host.Init)
	must.Eq(t, []string{"NONE"}, spec.Config.Healthcheck.Test)
}

func TestContainerLogging(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, hcl, plugin string
		want              container.LogConfig
	}{
		{"the plugin's default", ``, ``, container.LogConfig{Type: "json-file", Config: map[string]string{"max-file": "2", "max-size": "2m"}}},
		{"the plugin's choice", ``, `logging { type = "local" }`, container.LogConfig{Type: "local"}},
		{"the task's", `logging { type = "gelf" }`, ``, container.LogConfig{Type: "gelf"}},
		{"the task's over the older name", "logging {\n type = \"gelf\"\n driver = \"syslog\"\n}", `logging { type = "local" }`, container.LogConfig{Type: "gelf"}},
		{"the older name", `logging { driver = "gelf" }`, ``, container.LogConfig{Type: "gelf"}},
		{"config alone", "logging {\n config { max-size = \"1m\" }\n}", ``, container.LogConfig{Config: map[string]string{"max-size": "1m"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := build(t, newInput(t, c.hcl, c.plugin)).Host.LogConfig
			must.Eq(t, c.want.Type, got.Type)
			must.Eq(t, len(c.want.Config), len(got.Config))
			for key, value := range c.want.Config {
				must.Eq(t, value, got.Config[key])
			}
		})
	}
}

func TestContainerMemory(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		hcl           string
		memory, most  int64
		hard, reserve int64 // MiB
	}{
		{"limit only", ``, 256, 0, 256, 0},
		{"memory_max", ``, 256, 512, 512, 256},
		{"memory_hard_limit", `memory_hard_limit = 1024`, 256, 0, 1024, 256},
		{"the larger of both", `memory_hard_limit = 300`, 256, 512, 512, 256},
		{"no limit", ``, 256, -1, 0, 256},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in := newInput(t, c.hcl, ``)
			in.Task.Resources.NomadResources.Memory = structs.AllocatedMemoryResources{MemoryMB: c.memory, MemoryMaxMB: c.most}
			host := build(t, in).Host
			must.Eq(t, c.hard*mib, host.Memory)
			must.Eq(t, c.reserve*mib, host.MemoryReservation)
			must.Eq(t, host.Memory, host.MemorySwap)
			must.Eq(t, 0, *host.MemorySwappiness)
		})
	}
}

func TestContainerResources(t *testing.T) {
	t.Parallel()
	in := newInput(t, `
		cpu_hard_limit = true
		cpu_cfs_period = 50000
		shm_size = 1024
		pids_limit = 10
		oom_score_adj = 7
		ulimit { 
		  nofile = "1024:2048"
		  nproc = "42"
		}
		sysctl { "net.core.somaxconn" = "1024" }
		storage_opt { size = "1G" }`, `pids_limit = 20`)
	in.Task.Resources.LinuxResources.CpusetCpus = "2-3"
	host := build(t, in).Host
	must.Eq(t, 500, host.CPUShares)
	must.Eq(t, 50000, host.CPUPeriod)
	must.Positive(t, host.CPUQuota)
	must.Eq(t, "2-3", host.CpusetCpus)
	must.Eq(t, 1024, host.ShmSize)
	must.Eq(t, 10, *host.PidsLimit)
	must.Eq(t, 7, host.OomScoreAdj)
	must.Eq(t, []*container.Ulimit{{Name: "nofile", Soft: 1024, Hard: 2048}, {Name: "nproc", Soft: 42, Hard: 42}}, host.Ulimits)
	must.Eq(t, map[string]string{"net.core.somaxconn": "1024"}, host.Sysctls)
	must.Eq(t, map[string]string{"size": "1G"}, host.StorageOpt)
}

func TestContainerSecurity(t *testing.T) {
	t.Parallel()
	in := newInput(t, `
		cap_drop = ["mknod"]
		readonly_rootfs = true
		group_add = ["video"]
		security_opt = ["seccomp=local/profile.json", "no-new-privileges"]
		pid_mode = "host"`, `allowed_modes { pid = ["host"] }`)
	must.NoError(t, os.WriteFile(filepath.Join(in.Task.TaskDir().LocalDir, "profile.json"), []byte("{ \"a\":\n 1 }"), 0o600))
	host := build(t, in).Host
	must.Eq(t, []string{"mknod", "net_raw"}, []string(host.CapDrop))
	must.True(t, host.ReadonlyRootfs)
	must.Eq(t, []string{"video"}, host.GroupAdd)
	must.Eq(t, []string{`seccomp={"a":1}`, "no-new-privileges"}, host.SecurityOpt)
	must.Eq(t, "host", string(host.PidMode))
}

// The NVIDIA runtime is for tasks that hold GPU memory, and for no others.
func TestContainerRuntime(t *testing.T) {
	t.Parallel()
	must.Eq(t, "", build(t, newInput(t, ``, ``)).Host.Runtime)
	must.Eq(t, "runc", build(t, newInput(t, `runtime = "runc"`, ``)).Host.Runtime)
	must.Eq(t, "nvidia", build(t, newInput(t, ``, ``, slice(gpuA, 1))).Host.Runtime)
	must.Eq(t, "nvidia", build(t, newInput(t, `runtime = "nvidia"`, ``, slice(gpuA, 1))).Host.Runtime)
	must.Eq(t, "nv2", build(t, newInput(t, ``, `nvidia_runtime = "nv2"`, slice(gpuA, 1))).Host.Runtime,
		must.Sprint("what allows the runtime by its usual name allows it by another"))
	named := "nvidia_runtime = \"nv2\"\nallow_runtimes = [\"runc\", \"nv2\"]"
	must.Eq(t, "nv2", build(t, newInput(t, ``, named, slice(gpuA, 1))).Host.Runtime)
}

func TestContainerStorage(t *testing.T) {
	t.Parallel()
	in := newInput(t, `
		volumes = ["local/conf:/etc/app:ro", "../alloc/shared:/shared"]
		mount {
		  type   = "bind"
		  source = "local"
		  target = "/m"
		}
		mounts = [{ type = "tmpfs", target = "/t", tmpfs_options = { size = 100, mode = 511 } }]`, `volumes { selinuxlabel = "z" }`)
	in.Task.Mounts = []*drivers.MountConfig{{TaskPath: "/vol", HostPath: "/mnt/vol", Readonly: true, PropagationMode: "host-to-task"}}
	dir := in.Task.AllocDir
	host := build(t, in).Host
	must.Eq(t, []string{
		dir + "/alloc:/alloc:z",
		dir + "/alloc/logs:/alloc/logs:ro,z",
		dir + "/app/local:/local:z",
		dir + "/app/secrets:/secrets:z",
		dir + "/app/local/conf:/etc/app:ro,z",
		dir + "/alloc/shared:/shared:z",
	}, host.Binds)
	must.Eq(t, []mount.Mount{
		{Type: "bind", Source: dir + "/app/local", Target: "/m"},
		{Type: "tmpfs", Target: "/t", TmpfsOptions: &mount.TmpfsOptions{SizeBytes: 100, Mode: 511}},
		{Type: "bind", Source: "/mnt/vol", Target: "/vol", ReadOnly: true, BindOptions: &mount.BindOptions{Propagation: "rslave"}},
	}, host.Mounts)
}

func TestContainerVolumesOfTheHost(t *testing.T) {
	t.Parallel()
	in := newInput(t, `
		volumes = ["/srv/data:/data"]
		mount {
		  source = "named"
		  target = "/v"
		}`, `volumes { enabled = true }`)
	host := build(t, in).Host
	must.SliceContains(t, host.Binds, "/srv/data:/data")
	must.Eq(t, mount.TypeVolume, host.Mounts[0].Type)

	named := newInput(t, "volumes = [\"vol:/data\"]\nvolume_driver = \"pxd\"", `volumes { enabled = true }`)
	must.SliceContains(t, build(t, named).Host.Binds, "vol:/data")
}

func TestContainerDevices(t *testing.T) {
	t.Parallel()
	in := newInput(t, `devices = [{ host_path = "/dev/null", cgroup_permissions = "r" }]`, ``)
	in.Task.Devices = []*drivers.DeviceConfig{{HostPath: "/dev/zero", TaskPath: "/dev/z", Permissions: "rw"}}
	must.Eq(t, []container.DeviceMapping{
		{PathOnHost: "/dev/null", PathInContainer: "/dev/null", CgroupPermissions: "r"},
		{PathOnHost: "/dev/zero", PathInContainer: "/dev/z", CgroupPermissions: "rw"},
	}, build(t, in).Host.Devices)
}

// The whole of a node's MHz may be more than the kernel's range of shares.
func TestContainerShares(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		shares, want int64
		part         float64
	}{
		{"the task's MHz", 500, 500, 0.25},
		{"the kernel's least", 1, 2, 0.001},
		{"a quarter of a large node", 100_000, 65_536, 0.25},
		{"a large node whole", 400_000, 262_144, 1},
		{"a part that is not known", 500_000, 262_144, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in := newInput(t, ``, ``)
			in.Task.Resources.LinuxResources.CPUShares, in.Task.Resources.LinuxResources.PercentTicks = c.shares, c.part
			must.Eq(t, c.want, build(t, in).Host.CPUShares)
		})
	}
}

// A hard limit is of the CPUs that the task's MHz amount to, in each period.
func TestContainerHardLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		hcl, why          string
		part              float64 // of the node's MHz
		period, wantQuota int64   // of the quota per CPU of the node
	}{
		{hcl: ``, why: "no limit"},
		{hcl: `cpu_hard_limit = true`, part: 0.25, period: 100_000, wantQuota: 25_000},
		{hcl: "cpu_hard_limit = true\ncpu_cfs_period = 0", part: 0.25, period: 50_000, wantQuota: 12_500, why: "Nomad's period"},
		{hcl: "cpu_hard_limit = true\ncpu_cfs_period = 20000", part: 0.5, period: 20_000, wantQuota: 10_000},
	} {
		in := newInput(t, c.hcl, ``)
		linux := in.Task.Resources.LinuxResources
		linux.PercentTicks, linux.CPUPeriod = c.part, 50_000
		host := build(t, in).Host
		must.Eq(t, c.period, host.CPUPeriod, must.Sprint(c.hcl, c.why))
		must.Eq(t, c.wantQuota*int64(runtime.NumCPU()), host.CPUQuota, must.Sprint(c.hcl, c.why))
	}
	in := newInput(t, "cpu_hard_limit = true\ncpu_cfs_period = 1000", ``)
	in.Task.Resources.LinuxResources.PercentTicks = 0.001
	must.Eq(t, 1000, build(t, in).Host.CPUQuota, must.Sprint("the least that Docker takes"))
}

func TestContainerName(t *testing.T) {
	t.Parallel()
	in := newInput(t, ``, ``)
	in.Task.Name = "a/b"
	must.Eq(t, "a_b_"+allocID, build(t, in).Name)
}

func TestContainerPids(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		hcl, config string
		want        int64 // 0: not set, thus unlimited
	}{
		{``, ``, 0},
		{``, `pids_limit = 20`, 20},
		{`pids_limit = 10`, ``, 10},
		{`pids_limit = 10`, `pids_limit = 20`, 10},
		{`pids_limit = -1`, ``, -1},
		{`pids_limit = -1`, `pids_limit = 20`, 20},
	} {
		limit := build(t, newInput(t, c.hcl, c.config)).Host.PidsLimit
		if c.want == 0 {
			must.Nil(t, limit)
			continue
		}
		must.Eq(t, c.want, *limit)
	}
}

func TestContainerNameAttempts(t *testing.T) {
	t.Parallel()
	must.Eq(t, 5, build(t, newInput(t, ``, ``)).Attempts)
	must.Eq(t, 3, build(t, newInput(t, ``, `container_exists_attempts = 3`)).Attempts)
	must.Eq(t, 2, build(t, newInput(t, `container_exists_attempts = 2`, `container_exists_attempts = 3`)).Attempts)
}

func TestContainerCPUs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, hcl, cores, pool, want string
	}{
		{"no pool", ``, "", "", ""},
		{"a part of the node", ``, "", "0", "0"},
		{"all of the node", ``, "", "0-4095", ""},
		{"nonsense", ``, "", "many", ""},
		{"cores of its own", ``, "2-3", "", "2-3"},
		{"named by the job", `cpuset_cpus = "1"`, "", "0", "1"},
		{"named by the job, and cores", `cpuset_cpus = "1"`, "2,3", "", "2,3"},
	} {
		in := newInput(t, c.hcl, ``)
		in.Task.Resources.LinuxResources.CpusetCpus, in.SharedCPUs = c.cores, c.pool
		must.Eq(t, c.want, build(t, in).Host.CpusetCpus, must.Sprint(c.name))
	}
}
