// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/go-connections/nat"
	"github.com/hashicorp/nomad/helper/pluginutils/hclutils"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/driver/config"
	"nomad-gpu-mem/driver/configtest"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/internal/tableconfig"
)

func TestEveryTaskOption(t *testing.T) {
	t.Parallel()
	must.Eq(t, &config.TaskConfig{
		Image: "https://registry.local:5000/team/app:1", ImagePullTimeout: "10m", ForcePull: true, Load: "app.tar",
		Auth: config.Auth{Username: "u", Password: "p", Email: "e@example.org", ServerAddress: "registry.local:5000"}, AuthSoftFail: true,
		Command: "serve", Args: []string{"-v", "x"}, Entrypoint: []string{"/bin/sh", "-c"}, WorkDir: "/srv", Hostname: "h",
		TTY: true, Interactive: true, Init: true, Labels: hclutils.MapStrStr{"a": "b", "c": "d"},
		Healthchecks: config.Healthchecks{Disable: true}, ContainerExistsAttempts: 3,
		Logging: config.Logging{Type: "gelf", Driver: "syslog", Config: hclutils.MapStrStr{"gelf-address": "udp://1.2.3.4:12201"}},

		CPUHardLimit: true, CPUCFSPeriod: 20000, CpusetCpus: "0-1", MemoryHardLimit: 512, PidsLimit: 100, ShmSize: 1048576,
		Ulimit: hclutils.MapStrStr{"nofile": "1024:2048", "nproc": "42"}, Sysctl: hclutils.MapStrStr{"net.core.somaxconn": "1024"},
		StorageOpt: map[string]string{"size": "1G"}, OOMScoreAdj: 5,

		Privileged: true, CapAdd: []string{"CAP_NET_ADMIN"}, CapDrop: []string{"mknod"},
		SecurityOpt:    []string{"no-new-privileges", "seccomp=local/profile.json"},
		ReadonlyRootfs: true, Runtime: "runc", GroupAdd: []string{"video"},
		IPCMode: "host", PIDMode: "host", UTSMode: "host", UsernsMode: "host", Cgroupns: "private", Isolation: "process",
		Devices: []config.Device{{HostPath: "/dev/null", ContainerPath: "/dev/n", CgroupPermissions: "r"}},

		NetworkMode: "backend", Ports: []string{"http"}, PortMap: hclutils.MapStrInt{"http": 80}, NetworkAliases: []string{"web"},
		IPv4Address: "172.18.0.9", IPv6Address: "2001:db8::9", MACAddress: "02:68:b3:29:da:98", AdvertiseIPv6Address: true,
		DNSServers: []string{"1.1.1.1"}, DNSSearchDomains: []string{"example.org"}, DNSOptions: []string{"ndots:1"},
		ExtraHosts: []string{"a:1.2.3.4"},

		Volumes: []string{"data:/data:ro"}, VolumeDriver: "pxd",
		Mount: []config.Mount{
			{Type: "bind", Source: "local", Target: "/m", ReadOnly: true, BindOptions: config.BindOptions{Propagation: "rshared"}},
			{Type: "tmpfs", Target: "/t", TmpfsOptions: config.TmpfsOptions{SizeBytes: 100, Mode: 511}},
			{Type: "volume", Source: "vol", Target: "/v", VolumeOptions: config.VolumeOptions{
				NoCopy: true, Labels: hclutils.MapStrStr{"l": "1"}, DriverConfig: config.VolumeDriver{Name: "d", Options: hclutils.MapStrStr{"o": "2"}},
			}},
		},
		MountsList: []config.Mount{
			{Type: "bind", Source: "/srv", Target: "/m2", ReadOnly: true, BindOptions: config.BindOptions{Propagation: "rslave"}},
			{Type: "tmpfs", Target: "/t2", TmpfsOptions: config.TmpfsOptions{SizeBytes: 7, Mode: 448}},
			{Type: "volume", Source: "vol2", Target: "/v2", VolumeOptions: config.VolumeOptions{
				NoCopy: true, Labels: hclutils.MapStrStr{"l": "2"}, DriverConfig: config.VolumeDriver{Name: "e", Options: hclutils.MapStrStr{"o": "3"}},
			}},
		},
	}, configtest.TaskFile(t, "../config/testdata/task.hcl"))
}

// The container of a job that uses every option, whole.
func TestEveryTaskOptionInDocker(t *testing.T) {
	t.Parallel()
	in := newInput(t, ``, `
		allow_privileged = true
		allow_caps       = ["net_admin"]
		pids_limit       = 200
		oom_score_adj    = 9
		volumes { enabled = true }`)
	in.Job = configtest.TaskFile(t, "../config/testdata/task.hcl")
	in.Task.User = "www-data"
	in.Task.Env = map[string]string{"NOMAD_PORT_http": "8080"}
	in.Task.Resources.Ports = &structs.AllocatedPorts{{Label: "http", Value: 8080, To: 80, HostIP: "10.0.0.1"}}
	dir, local := in.Task.AllocDir, in.Task.TaskDir().LocalDir
	must.NoError(t, os.WriteFile(filepath.Join(local, "profile.json"), []byte("{ \"a\":\n 1 }"), 0o600))
	must.ErrorContains(t, in.Job.Validate(), "config.isolation")
	in.Job.Isolation = ""
	must.NoError(t, in.Job.Validate())

	yes, noSwap, pids := true, int64(0), int64(100)
	spec, remarks, err := in.Build()
	must.NoError(t, err)
	must.Eq(t, []string{"config.auth.email has no effect: registries no longer ask for it"}, remarks)
	must.Eq(t, docker.Spec{
		Name:      "app_" + allocID,
		MAC:       "02:68:b3:29:da:98",
		ImageName: "registry.local:5000/team/app:1",
		Attempts:  3,
		Config: &container.Config{
			Image:        "sha256:1234",
			Hostname:     "h",
			User:         "www-data",
			Entrypoint:   []string{"/bin/sh", "-c"},
			Cmd:          []string{"serve", "-v", "x"},
			WorkingDir:   "/srv",
			Tty:          true,
			OpenStdin:    true,
			Env:          []string{"NOMAD_PORT_http=80", "NVIDIA_VISIBLE_DEVICES=void"},
			ExposedPorts: nat.PortSet{"80/tcp": {}, "80/udp": {}},
			Healthcheck:  &container.HealthConfig{Test: []string{"NONE"}},
			Labels: map[string]string{
				"a": "b", "c": "d", "nomad-gpu-mem.alloc_id": allocID, "nomad-gpu-mem.task_id": allocID + "/app/1", "nomad-gpu-mem.gpus": "", "nomad-gpu-mem.node_id": "",
			},
		},
		Host: &container.HostConfig{
			Binds: []string{
				dir + "/alloc:/alloc", dir + "/alloc/logs:/alloc/logs:ro", local + ":/local", dir + "/app/secrets:/secrets",
				"data:/data:ro",
			},
			LogConfig:    container.LogConfig{Type: "gelf", Config: map[string]string{"gelf-address": "udp://1.2.3.4:12201"}},
			NetworkMode:  "backend",
			PortBindings: nat.PortMap{"80/tcp": {{HostIP: "10.0.0.1", HostPort: "8080"}}, "80/udp": {{HostIP: "10.0.0.1", HostPort: "8080"}}},
			VolumeDriver: "pxd",
			CapAdd:       []string{"net_admin"},
			CapDrop: []string{
				"audit_write", "chown", "dac_override", "fowner", "fsetid", "kill", "mknod", "net_bind_service", "net_raw",
				"setfcap", "setgid", "setpcap", "setuid", "sys_chroot",
			},
			CgroupnsMode:   "private",
			DNS:            []string{"1.1.1.1"},
			DNSOptions:     []string{"ndots:1"},
			DNSSearch:      []string{"example.org"},
			ExtraHosts:     []string{"a:1.2.3.4"},
			GroupAdd:       []string{"video"},
			IpcMode:        "host",
			OomScoreAdj:    5,
			PidMode:        "host",
			Privileged:     true,
			ReadonlyRootfs: true,
			SecurityOpt:    []string{"no-new-privileges", `seccomp={"a":1}`},
			StorageOpt:     map[string]string{"size": "1G"},
			UTSMode:        "host",
			UsernsMode:     "host",
			ShmSize:        1048576,
			Sysctls:        map[string]string{"net.core.somaxconn": "1024"},
			Runtime:        "runc",
			Init:           &yes,
			Resources: container.Resources{
				CPUShares:         500,
				CPUPeriod:         20000,
				CPUQuota:          int64(0.25 * 20000 * float64(runtime.NumCPU())),
				CpusetCpus:        "0-1",
				Devices:           []container.DeviceMapping{{PathOnHost: "/dev/null", PathInContainer: "/dev/n", CgroupPermissions: "r"}},
				Memory:            512 * mib,
				MemoryReservation: 256 * mib,
				MemorySwap:        512 * mib,
				MemorySwappiness:  &noSwap,
				PidsLimit:         &pids,
				Ulimits:           []*container.Ulimit{{Name: "nofile", Soft: 1024, Hard: 2048}, {Name: "nproc", Soft: 42, Hard: 42}},
			},
			Mounts: []mount.Mount{
				{Type: "bind", Source: local, Target: "/m", ReadOnly: true, BindOptions: &mount.BindOptions{Propagation: "rshared"}},
				{Type: "tmpfs", Target: "/t", TmpfsOptions: &mount.TmpfsOptions{SizeBytes: 100, Mode: 511}},
				{Type: "volume", Source: "vol", Target: "/v", VolumeOptions: &mount.VolumeOptions{
					NoCopy: true, Labels: map[string]string{"l": "1"}, DriverConfig: &mount.Driver{Name: "d", Options: map[string]string{"o": "2"}},
				}},
				{Type: "bind", Source: "/srv", Target: "/m2", ReadOnly: true, BindOptions: &mount.BindOptions{Propagation: "rslave"}},
				{Type: "tmpfs", Target: "/t2", TmpfsOptions: &mount.TmpfsOptions{SizeBytes: 7, Mode: 448}},
				{Type: "volume", Source: "vol2", Target: "/v2", VolumeOptions: &mount.VolumeOptions{
					NoCopy: true, Labels: map[string]string{"l": "2"}, DriverConfig: &mount.Driver{Name: "e", Options: map[string]string{"o": "3"}},
				}},
			},
		},
		Network: &network.NetworkingConfig{EndpointsConfig: map[string]*network.EndpointSettings{"backend": {
			Aliases:    []string{"web"},
			IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: "172.18.0.9", IPv6Address: "2001:db8::9"},
		}}},
	}, spec)
}

// The container of a job that says no more than its image, whole.
func TestNoTaskOptionInDocker(t *testing.T) {
	t.Parallel()
	in := newInput(t, ``, ``)
	dir, noSwap := in.Task.AllocDir, int64(0)
	spec, remarks, err := in.Build()
	must.NoError(t, err)
	must.SliceEmpty(t, remarks)
	must.Eq(t, docker.Spec{
		Name:      "app_" + allocID,
		ImageName: "local/app:1",
		Attempts:  5,
		Config: &container.Config{
			Image:  "sha256:1234",
			Env:    []string{"NVIDIA_VISIBLE_DEVICES=void"},
			Labels: map[string]string{"nomad-gpu-mem.alloc_id": allocID, "nomad-gpu-mem.task_id": allocID + "/app/1", "nomad-gpu-mem.gpus": "", "nomad-gpu-mem.node_id": ""},
		},
		Host: &container.HostConfig{
			Binds: []string{
				dir + "/alloc:/alloc", dir + "/alloc/logs:/alloc/logs:ro", dir + "/app/local:/local", dir + "/app/secrets:/secrets",
			},
			LogConfig:   container.LogConfig{Type: "json-file", Config: map[string]string{"max-file": "2", "max-size": "2m"}},
			NetworkMode: "default",
			CapAdd:      []string{},
			CapDrop:     []string{"net_raw"},
			Resources: container.Resources{
				CPUShares: 500, Memory: 256 * mib, MemorySwap: 256 * mib, MemorySwappiness: &noSwap,
			},
		},
		Network: &network.NetworkingConfig{},
	}, spec)
}

func TestEveryPluginOption(t *testing.T) {
	t.Parallel()
	got := configtest.PluginFile(t, "../config/testdata/plugin.hcl")
	must.Eq(t, config.Config{
		Endpoint: "tcp://127.0.0.1:2376", TLS: config.TLS{Cert: "/c.pem", Key: "/k.pem", CA: "/ca.pem"}, Auth: config.RegistryAuth{Config: "/auth.json", Helper: "ecr-login"},
		NvidiaRuntime: "nvidia-cdi", GPUInjection: "runtime", AllowPrivilegedGPU: true,
		GPUObserver: config.GPUObserver{
			Jobs: []string{"monitoring/gpu-exporter"}, Capabilities: []string{"utility", "compute"},
			Images: []string{"exporter@sha256:5b1ae1f0f3d5c1f7a8e4b2c6d9e0f1a2b3c4d5e6f708192a3b4c5d6e7f809101"},
		},
		ClaimTimeout: "0s", StateDir: "/opt/state",
		Table: tableconfig.Config{
			Store: "file", Address: "127.0.0.1:8501", Token: "t", Prefix: "p", Path: "/opt/table.json",
			TokenFile: "/token", CAFile: "/ca.pem", CertFile: "/c.pem", KeyFile: "/k.pem", TLSServerName: "server.dc1.consul",
			Namespace: "team-a", Partition: "gpus", Datacenter: "dc2",
		},
		AllowPrivileged: true, AllowCaps: []string{"all"}, AllowRuntimes: []string{"runc", "nvidia-cdi"},
		AllowedModes: config.AllowedModes{
			PID: []string{"host"}, IPC: []string{"container:*"}, Userns: []string{"host"}, UTS: []string{"host"},
			Cgroupns: []string{"host"}, Network: []string{"container:vpn"},
		},
		AllowedDevices: []string{"/dev/kfd", "/dev/vfio/*"},
		Volumes:        config.Volumes{Enabled: true, SelinuxLabel: "z", StageSources: new(bool)}, AllowWritableLogs: true, PidsLimit: 512, OOMScoreAdj: 10,
		ExtraLabels: []string{"job_*"}, CompatLabels: true, DisableLogCollection: true,
		Logging:    config.DefaultLogging{Type: "journald", Config: map[string]string{"tag": "x"}},
		InfraImage: "local/pause:1", InfraImagePullTimeout: "1m", ImagePullTimeout: "9m", PullActivityTimeout: "3m",
		ContainerExistsAttempts: 4,
		GC: config.GC{ImageDelay: "4m", Dangling: config.Dangling{
			DryRun: true, Period: "2m", CreationGrace: "1m",
		}},
		WindowsAllowInsecureContainerAdmin: true,
	}, got)
	s, err := got.Settings()
	must.NoError(t, err)
	must.Eq(t, 0, s.ClaimWait)
	must.Eq(t, 9*time.Minute, s.PullLimit)
	must.Eq(t, 3*time.Minute, s.PullIdle)
	must.Eq(t, time.Minute, s.InfraPullLimit)
	must.Eq(t, 4*time.Minute, s.ImageDelay)
	must.Eq(t, 2*time.Minute, s.DanglingPeriod)
	must.Eq(t, time.Minute, s.DanglingGrace)
	must.Eq(t, docker.Config{
		Endpoint: "tcp://127.0.0.1:2376", Cert: "/c.pem", Key: "/k.pem", CA: "/ca.pem",
		AuthConfigFile: "/auth.json", AuthHelper: "ecr-login", InfraImage: "local/pause:1",
		InfraPinFile: "/opt/state/infra_image.json", SpoolDir: "/opt/state",
	}, s.Engine())
}

// The container of a job that says no more than its image, with every option of the
// operator's: what they change.
func TestEveryPluginOptionInDocker(t *testing.T) {
	t.Parallel()
	in := newInput(t, ``, ``, slice(gpuA, 1))
	var err error
	in.Settings, err = configtest.PluginFile(t, "../config/testdata/plugin.hcl").Settings()
	must.NoError(t, err)
	spec := build(t, in)
	dir := in.Task.AllocDir
	must.Eq(t, []string{dir + "/alloc:/alloc:z", dir + "/app/local:/local:z", dir + "/app/secrets:/secrets:z"}, spec.Host.Binds)
	must.Eq(t, container.LogConfig{Type: "journald", Config: map[string]string{"tag": "x"}}, spec.Host.LogConfig)
	must.Eq(t, "nvidia-cdi", spec.Host.Runtime)
	must.Eq(t, 512, *spec.Host.PidsLimit)
	must.Eq(t, 10, spec.Host.OomScoreAdj)
	must.SliceNotContains(t, spec.Host.CapDrop, "net_raw")
	must.Eq(t, 4, spec.Attempts)
	must.Eq(t, map[string]string{
		"nomad-gpu-mem.alloc_id": allocID, "nomad-gpu-mem.task_id": allocID + "/app/1", "nomad-gpu-mem.gpus": "GPU-aaaa", "nomad-gpu-mem.node_id": "",
		"nomad-gpu-mem.job_id": "job-id", "nomad-gpu-mem.job_name": "job",
		"com.hashicorp.nomad.alloc_id": allocID, "com.hashicorp.nomad.job_id": "job-id", "com.hashicorp.nomad.job_name": "job",
	}, spec.Config.Labels)
}
