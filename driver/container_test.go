package driver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/go-connections/nat"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/docker"
)

const allocID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"

// newOrder is an order for the config block in hcl, with the settings in config.
func newOrder(t *testing.T, hcl, config string, bookings ...allocator.Booking) *order {
	t.Helper()
	s, err := parseConfig(t, config).settings()
	must.NoError(t, err)
	allocDir := t.TempDir()
	must.NoError(t, os.MkdirAll(filepath.Join(allocDir, "app", "local"), 0o755))
	return &order{
		task: &drivers.TaskConfig{
			ID: allocID + "/app/1", Name: "app", JobName: "job", JobID: "job-id", AllocID: allocID, AllocDir: allocDir,
			Resources: &drivers.Resources{
				NomadResources: &structs.AllocatedTaskResources{Memory: structs.AllocatedMemoryResources{MemoryMB: 256}},
				LinuxResources: &drivers.LinuxResources{CPUShares: 500, PercentTicks: 0.25},
			},
		},
		job:      parseTask(t, hcl),
		settings: s,
		bookings: bookings,
		image:    docker.Image{ID: "sha256:1234"},
	}
}

func build(t *testing.T, o *order) docker.Spec {
	t.Helper()
	spec, _, err := o.build()
	must.NoError(t, err)
	return spec
}

func TestContainerProcess(t *testing.T) {
	t.Parallel()
	o := newOrder(t, `
		command = "serve"
		args = ["-v"]
		entrypoint = ["/init"]
		work_dir = "/srv"
		tty = true
		interactive = true
		init = true
		healthchecks { disable = true }`, ``)
	o.task.User = "nobody"
	spec := build(t, o)
	must.Eq(t, "app_"+allocID, spec.Name)
	must.Eq(t, "sha256:1234", spec.Config.Image)
	must.Eq(t, []string{"serve", "-v"}, []string(spec.Config.Cmd))
	must.Eq(t, []string{"/init"}, []string(spec.Config.Entrypoint))
	must.Eq(t, "nobody", spec.Config.User)
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
		{"the older name", `logging { driver = "gelf" }`, ``, container.LogConfig{Type: "gelf"}},
		{"config alone", "logging {\n config { max-size = \"1m\" }\n}", ``, container.LogConfig{Config: map[string]string{"max-size": "1m"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := build(t, newOrder(t, c.hcl, c.plugin)).Host.LogConfig
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
			o := newOrder(t, c.hcl, ``)
			o.task.Resources.NomadResources.Memory = structs.AllocatedMemoryResources{MemoryMB: c.memory, MemoryMaxMB: c.most}
			host := build(t, o).Host
			must.Eq(t, c.hard*mib, host.Memory)
			must.Eq(t, c.reserve*mib, host.MemoryReservation)
			must.Eq(t, host.Memory, host.MemorySwap)
			must.Eq(t, 0, *host.MemorySwappiness)
		})
	}
}

func TestContainerResources(t *testing.T) {
	t.Parallel()
	o := newOrder(t, `
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
	o.task.Resources.LinuxResources.CpusetCpus = "2-3"
	host := build(t, o).Host
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
	o := newOrder(t, `
		cap_drop = ["mknod"]
		readonly_rootfs = true
		group_add = ["video"]
		security_opt = ["seccomp=local/profile.json", "no-new-privileges"]
		pid_mode = "host"`, `allowed_modes { pid = ["host"] }`)
	must.NoError(t, os.WriteFile(filepath.Join(o.task.TaskDir().LocalDir, "profile.json"), []byte("{ \"a\":\n 1 }"), 0o600))
	host := build(t, o).Host
	must.Eq(t, []string{"mknod", "net_raw"}, []string(host.CapDrop))
	must.True(t, host.ReadonlyRootfs)
	must.Eq(t, []string{"video"}, host.GroupAdd)
	must.Eq(t, []string{`seccomp={"a":1}`, "no-new-privileges"}, host.SecurityOpt)
	must.Eq(t, "host", string(host.PidMode))
}

// The NVIDIA runtime is for tasks that hold GPU memory, and for no others.
func TestContainerRuntime(t *testing.T) {
	t.Parallel()
	must.Eq(t, "", build(t, newOrder(t, ``, ``)).Host.Runtime)
	must.Eq(t, "runc", build(t, newOrder(t, `runtime = "runc"`, ``)).Host.Runtime)
	must.Eq(t, "nvidia", build(t, newOrder(t, ``, ``, slice(gpuA, 1))).Host.Runtime)
	must.Eq(t, "nvidia", build(t, newOrder(t, `runtime = "nvidia"`, ``, slice(gpuA, 1))).Host.Runtime)
}

func TestContainerNetwork(t *testing.T) {
	t.Parallel()
	t.Run("default", func(t *testing.T) {
		t.Parallel()
		spec := build(t, newOrder(t, `
			hostname = "h"
			mac_address = "02:68:b3:29:da:98"
			dns_servers = ["1.1.1.1"]
			dns_search_domains = ["example.org"]
			dns_options = ["ndots:1"]
			extra_hosts = ["a:1.2.3.4"]`, ``))
		must.Eq(t, "default", string(spec.Host.NetworkMode))
		must.Eq(t, "h", spec.Config.Hostname)
		must.Eq(t, []string{"1.1.1.1"}, spec.Host.DNS)
		must.Eq(t, []string{"example.org"}, spec.Host.DNSSearch)
		must.Eq(t, []string{"ndots:1"}, spec.Host.DNSOptions)
		must.Eq(t, []string{"a:1.2.3.4"}, spec.Host.ExtraHosts)
	})
	t.Run("own network", func(t *testing.T) {
		t.Parallel()
		spec := build(t, newOrder(t, `
			network_mode = "backend"
			network_aliases = ["web"]
			ipv4_address = "172.18.0.9"`, ``))
		endpoint := spec.Network.EndpointsConfig["backend"]
		must.Eq(t, []string{"web"}, endpoint.Aliases)
		must.Eq(t, "172.18.0.9", endpoint.IPAMConfig.IPv4Address)
	})
	t.Run("group network", func(t *testing.T) {
		t.Parallel()
		o := newOrder(t, `
			extra_hosts = ["a:1.2.3.4"]
			ports = ["http"]`, ``)
		o.task.NetworkIsolation = &drivers.NetworkIsolationSpec{Labels: map[string]string{sandboxContainer: "abc"}}
		o.task.Resources.Ports = &structs.AllocatedPorts{{Label: "http", Value: 8080, To: 80}}
		o.files = []*drivers.MountConfig{{TaskPath: "/etc/hosts", HostPath: "/x/hosts"}}
		spec := build(t, o)
		must.Eq(t, "container:abc", string(spec.Host.NetworkMode))
		must.SliceEmpty(t, spec.Host.ExtraHosts) // they are in the file
		must.MapEmpty(t, spec.Host.PortBindings) // Nomad forwards them
		must.MapEmpty(t, spec.Config.ExposedPorts)
	})
	t.Run("a mode of the job's own goes before the group's", func(t *testing.T) {
		t.Parallel()
		o := newOrder(t, `network_mode = "host"`, ``)
		o.task.NetworkIsolation = &drivers.NetworkIsolationSpec{Labels: map[string]string{sandboxContainer: "abc"}}
		must.Eq(t, "host", string(build(t, o).Host.NetworkMode))
	})
}

func TestContainerPorts(t *testing.T) {
	t.Parallel()
	t.Run("group ports by label", func(t *testing.T) {
		t.Parallel()
		o := newOrder(t, `ports = ["http", "same"]`, ``)
		o.task.Resources.Ports = &structs.AllocatedPorts{
			{Label: "http", Value: 8080, To: 80, HostIP: "10.0.0.1"},
			{Label: "same", Value: 9090, HostIP: "10.0.0.1"},
			{Label: "unlisted", Value: 7070, HostIP: "10.0.0.1"},
		}
		spec := build(t, o)
		must.Eq(t, nat.PortMap{
			"80/tcp":   {{HostIP: "10.0.0.1", HostPort: "8080"}},
			"80/udp":   {{HostIP: "10.0.0.1", HostPort: "8080"}},
			"9090/tcp": {{HostIP: "10.0.0.1", HostPort: "9090"}},
			"9090/udp": {{HostIP: "10.0.0.1", HostPort: "9090"}},
		}, spec.Host.PortBindings)
		must.MapLen(t, 4, spec.Config.ExposedPorts)
	})
	t.Run("task network and port_map", func(t *testing.T) {
		t.Parallel()
		o := newOrder(t, `port_map { http = 80 }`, ``)
		o.task.Env = map[string]string{"NOMAD_PORT_http": "8080"}
		o.task.Resources.NomadResources.Networks = structs.Networks{{
			IP: "10.0.0.1", DynamicPorts: []structs.Port{{Label: "http", Value: 8080}},
			ReservedPorts: []structs.Port{{Label: "admin", Value: 9000}},
		}}
		spec := build(t, o)
		must.Eq(t, []nat.PortBinding{{HostIP: "10.0.0.1", HostPort: "8080"}}, spec.Host.PortBindings["80/tcp"])
		must.Eq(t, []nat.PortBinding{{HostIP: "10.0.0.1", HostPort: "9000"}}, spec.Host.PortBindings["9000/udp"])
		must.SliceContains(t, spec.Config.Env, "NOMAD_PORT_http=80")
		must.Eq(t, "8080", o.task.Env["NOMAD_PORT_http"], must.Sprint("building changes nothing"))
	})
}

func TestContainerStorage(t *testing.T) {
	t.Parallel()
	o := newOrder(t, `
		volumes = ["local/conf:/etc/app:ro", "../alloc/shared:/shared"]
		mount {
		  type   = "bind"
		  source = "local"
		  target = "/m"
		}
		mounts = [{ type = "tmpfs", target = "/t", tmpfs_options = { size = 100, mode = 511 } }]`, `volumes { selinuxlabel = "z" }`)
	o.task.Mounts = []*drivers.MountConfig{{TaskPath: "/vol", HostPath: "/mnt/vol", Readonly: true, PropagationMode: "host-to-task"}}
	dir := o.task.AllocDir
	host := build(t, o).Host
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
	o := newOrder(t, `
		volumes = ["/srv/data:/data"]
		mount {
		  source = "named"
		  target = "/v"
		}`, `volumes { enabled = true }`)
	host := build(t, o).Host
	must.SliceContains(t, host.Binds, "/srv/data:/data")
	must.Eq(t, mount.TypeVolume, host.Mounts[0].Type)

	named := newOrder(t, "volumes = [\"vol:/data\"]\nvolume_driver = \"pxd\"", `volumes { enabled = true }`)
	must.SliceContains(t, build(t, named).Host.Binds, "vol:/data")
}

func TestContainerDevices(t *testing.T) {
	t.Parallel()
	o := newOrder(t, `devices = [{ host_path = "/dev/null", cgroup_permissions = "r" }]`, ``)
	o.task.Devices = []*drivers.DeviceConfig{{HostPath: "/dev/zero", TaskPath: "/dev/z", Permissions: "rw"}}
	must.Eq(t, []container.DeviceMapping{
		{PathOnHost: "/dev/null", PathInContainer: "/dev/null", CgroupPermissions: "r"},
		{PathOnHost: "/dev/zero", PathInContainer: "/dev/z", CgroupPermissions: "rw"},
	}, build(t, o).Host.Devices)
}

// Ours are there whatever the job says, and only those the operator asked for besides.
func TestContainerLabels(t *testing.T) {
	t.Parallel()
	o := newOrder(t, `labels {
		  a = "b"
		  "nomad-gpu-mem.task_id" = "forged"
		}`, `extra_labels = ["job_*"]`)
	must.Eq(t, map[string]string{
		"a":                      "b",
		"nomad-gpu-mem.alloc_id": allocID,
		"nomad-gpu-mem.task_id":  allocID + "/app/1",
		"nomad-gpu-mem.job_name": "job",
		"nomad-gpu-mem.job_id":   "job-id",
	}, build(t, o).Config.Labels)
}

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
		{"nvidia runtime not allowed", ``, `allow_runtimes = ["runc"]`, gpu, `requested runtime "nvidia" is not allowed`},
		{"capability", `cap_add = ["SYS_ADMIN"]`, ``, nil, "config.cap_add"},
		{"host pid", `pid_mode = "host"`, ``, nil, `config.pid_mode = "host"`},
		{"another's ipc", `ipc_mode = "container:x"`, `allowed_modes { ipc = ["host"] }`, nil, `config.ipc_mode = "container:x"`},
		{"host uts", `uts_mode = "host"`, ``, nil, "config.uts_mode"},
		{"host userns", `userns_mode = "host"`, ``, nil, "config.userns_mode"},
		{"seccomp file of the host", `security_opt = ["seccomp=/etc/hostname"]`, ``, nil, "volumes are not enabled"},
		{"ulimit", `ulimit { nofile = "many" }`, ``, nil, "config.ulimit nofile"},
		{"pids", `pids_limit = 100`, `pids_limit = 10`, nil, "config.pids_limit of 100"},
		{"memory", `memory_hard_limit = 100`, ``, nil, "config.memory_hard_limit of 100 MB"},
		{"dns", `dns_servers = ["nowhere"]`, ``, nil, "config.dns_servers"},
		{"port label", `ports = ["http"]`, ``, nil, "the group has no network block"},
		{"port_map", `port_map { http = 80 }`, ``, nil, "config.port_map"},
		{"host path", `volumes = ["/etc:/x"]`, ``, nil, "volumes are not enabled"},
		{"path that climbs out", `volumes = ["../../x:/x"]`, ``, nil, "volumes are not enabled"},
		{"volume", `volumes = ["/single"]`, ``, nil, "source:target"},
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
		{"CDI name", `devices = [{ host_path = "nvidia.com/gpu=all" }]`, ``, nil, "GPUs are given by device blocks only"},
		{"device permissions", `devices = [{ host_path = "/dev/null", cgroup_permissions = "x" }]`, ``, nil, "cgroup_permissions"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := newOrder(t, c.hcl, c.config, c.bookings...).build()
			must.ErrorContains(t, err, c.want)
		})
	}
}

func TestPrivilegedSliceIfTheOperatorWants(t *testing.T) {
	t.Parallel()
	o := newOrder(t, `privileged = true`, "allow_privileged = true\nallow_privileged_gpu = true", slice(gpuA, 1))
	spec := build(t, o)
	must.True(t, spec.Host.Privileged)
	must.SliceContains(t, spec.Config.Env, "CUDA_VISIBLE_DEVICES=GPU-aaaa")
}

// A link that the task made in an earlier run must not open the host to the next.
func TestLinksOutOfTheAllocationAreRefused(t *testing.T) {
	t.Parallel()
	for name, target := range map[string]string{"existing": "/etc", "dangling": "/nowhere/at/all"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOrder(t, `volumes = ["local/link/sub:/x"]`, `volumes { enabled = true }`)
			must.NoError(t, os.Symlink(target, filepath.Join(o.task.TaskDir().LocalDir, "link")))
			_, _, err := o.build()
			must.ErrorContains(t, err, "it leaves the allocation's directory")
		})
	}
	o := newOrder(t, `volumes = ["local/inner/sub:/x"]`, ``)
	must.NoError(t, os.Symlink("real", filepath.Join(o.task.TaskDir().LocalDir, "inner")))
	must.NoError(t, os.Mkdir(filepath.Join(o.task.TaskDir().LocalDir, "real"), 0o755))
	must.True(t, strings.HasSuffix(build(t, o).Host.Binds[4], "local/inner/sub:/x"))
}
