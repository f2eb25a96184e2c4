// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/helper/pluginutils/hclutils"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"
)

// parseTask reads a job's config block as Nomad does.
func parseTask(t *testing.T, hcl string) *TaskConfig {
	t.Helper()
	var c TaskConfig
	hclutils.NewConfigParser(TaskSpec()).ParseHCL(t, "config {\nimage = \"local/app:1\"\n"+hcl+"\n}", &c)
	return &c
}

func TestTaskConfigMinimal(t *testing.T) {
	t.Parallel()
	must.Eq(t, imageOnly(), parseTask(t, ``))
}

func imageOnly() *TaskConfig {
	return &TaskConfig{Image: "local/app:1", CPUCFSPeriod: 100_000, Devices: []Device{}, Mount: []Mount{}, MountsList: []Mount{}}
}

// Nomad's API sends null for what a job leaves out.
func TestTaskConfigNullIsUnset(t *testing.T) {
	t.Parallel()
	bodies := []string{`"auth":{"username":null}`, `"logging":{"config":null}`, `"healthchecks":{"disable":null}`}
	for key := range TaskSpec().GetObject().GetAttributes() {
		if key != "image" {
			bodies = append(bodies, fmt.Sprintf("%q:null", key))
		}
	}
	for _, body := range append(bodies, strings.Join(bodies[3:], ",")) {
		must.Eq(t, imageOnly(), parseTaskJSON(t, body), must.Sprint(body))
	}
	mount := parseTaskJSON(t, `"mount":[{"target":"/x","type":null,"bind_options":null,"volume_options":{"labels":null}}]`)
	must.Eq(t, []Mount{{Type: "volume", Target: "/x"}}, mount.Mount)
}

func parseTaskJSON(t *testing.T, body string) *TaskConfig {
	t.Helper()
	var c TaskConfig
	hclutils.NewConfigParser(TaskSpec()).ParseJson(t, `{"Config":{"image":"local/app:1",`+body+`}}`, &c)
	return &c
}

// The same in every spelling that jobs use.
func TestTaskConfigForms(t *testing.T) {
	t.Parallel()
	want := imageOnly()
	want.PortMap = hclutils.MapStrInt{"http": 80, "https": 443}
	want.Labels = hclutils.MapStrStr{"a": "1", "b": "2"}
	want.Ulimit = hclutils.MapStrStr{"nofile": "1", "nproc": "2"}
	want.Sysctl = hclutils.MapStrStr{"net.a": "1", "net.b": "2"}
	want.Logging = Logging{Type: "x", Config: hclutils.MapStrStr{"a": "1", "b": "2"}}
	want.Mount = []Mount{
		{Type: "bind", Target: "/a", Source: "a"}, {Type: "volume", Target: "/b", VolumeOptions: VolumeOptions{Labels: hclutils.MapStrStr{"a": "1", "b": "2"}}},
	}
	want.Devices = []Device{{HostPath: "/dev/a"}, {HostPath: "/dev/b"}}
	for name, hcl := range map[string]string{
		"blocks": `
			port_map {
			  http  = 80
			  https = 443
			}
			labels {
			  a = "1"
			  b = "2"
			}
			ulimit {
			  nofile = "1"
			  nproc  = "2"
			}
			sysctl {
			  "net.a" = "1"
			  "net.b" = "2"
			}
			logging {
			  type = "x"
			  config {
			    a = "1"
			    b = "2"
			  }
			}
			mount {
			  type   = "bind"
			  target = "/a"
			  source = "a"
			}
			mount {
			  target = "/b"
			  volume_options {
			    labels {
			      a = "1"
			      b = "2"
			    }
			  }
			}
			devices { host_path = "/dev/a" }
			devices { host_path = "/dev/b" }`,
		"assignments": `
			port_map = { http = 80, https = "443" }
			labels = { a = "1", b = 2 }
			ulimit = { nofile = "1", nproc = 2 }
			sysctl = { "net.a" = "1", "net.b" = 2 }
			logging = { type = "x", config = { a = "1", b = 2 } }
			mount = [{ type = "bind", target = "/a", source = "a" }, { target = "/b", volume_options = { labels = { a = "1", b = 2 } } }]
			devices = [{ host_path = "/dev/a" }, { host_path = "/dev/b" }]`,
		"blocks twice": `
			port_map { http = 80 }
			port_map { https = 443 }
			labels { a = "1" }
			labels { b = "2" }
			ulimit { nofile = "1" }
			ulimit { nproc = "2" }
			sysctl { "net.a" = "1" }
			sysctl { "net.b" = "2" }
			logging {
			  type = "x"
			  config { a = "1" }
			  config { b = "2" }
			}
			mount {
			  type   = "bind"
			  target = "/a"
			  source = "a"
			}
			mount {
			  target = "/b"
			  volume_options {
			    labels { a = "1" }
			    labels { b = "2" }
			  }
			}
			devices = [{ host_path = "/dev/a" }, { host_path = "/dev/b" }]`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			must.Eq(t, want, parseTask(t, hcl))
		})
	}
	for name, json := range map[string]string{
		"lists": `"port_map":[{"http":80},{"https":443}],"labels":[{"a":"1"},{"b":"2"}],"ulimit":[{"nofile":"1"},{"nproc":"2"}],
			"sysctl":[{"net.a":"1"},{"net.b":"2"}],"logging":[{"type":"x","config":[{"a":"1"},{"b":"2"}]}],
			"mount":[{"type":"bind","target":"/a","source":"a"},{"target":"/b","volume_options":[{"labels":[{"a":"1"},{"b":"2"}]}]}],
			"devices":[{"host_path":"/dev/a"},{"host_path":"/dev/b"}]`,
		"objects": `"port_map":[{"http":80,"https":443}],"labels":[{"a":"1","b":"2"}],"ulimit":[{"nofile":"1","nproc":"2"}],
			"sysctl":[{"net.a":"1","net.b":"2"}],"logging":{"type":"x","config":[{"a":"1","b":"2"}]},
			"mount":[{"type":"bind","target":"/a","source":"a"},{"target":"/b","volume_options":{"labels":[{"a":"1","b":"2"}]}}],
			"devices":[{"host_path":"/dev/a"},{"host_path":"/dev/b"}]`,
	} {
		t.Run("JSON "+name, func(t *testing.T) {
			t.Parallel()
			must.Eq(t, want, parseTaskJSON(t, json))
		})
	}
	for _, empty := range []string{`labels = {}`, `labels {}`, "labels {}\nlabels {}"} {
		must.MapEmpty(t, parseTask(t, empty).Labels)
	}
	must.MapEmpty(t, parseTaskJSON(t, `"labels":[{},{}]`).Labels)
}

func TestTaskConfigErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ hcl, want string }{
		{`command = " serve"`, `config.command " serve" begins or ends with a blank`},
		{`image_pull_timeout = "x"`, `config.image_pull_timeout: invalid duration "x"`},
		{`container_exists_attempts = -2`, `config.container_exists_attempts -2`},
		{`work_dir = "srv"`, `config.work_dir "srv" is not an absolute path`},
		{`labels { "nomad-gpu-mem.task_id" = "x" }`, `config.labels has "nomad-gpu-mem.task_id"`},
		{"cpu_hard_limit = true\ncpu_cfs_period = 2000000", `config.cpu_cfs_period 2000000`},
		{`cpuset_cpus = "0-"`, `config.cpuset_cpus "0-"`},
		{`cpuset_cpus = "3-1"`, `config.cpuset_cpus "3-1"`},
		{`cpuset_cpus = "a"`, `config.cpuset_cpus "a"`},
		{`pids_limit = -7`, `config.pids_limit -7`},
		{`shm_size = -1`, `config.shm_size -1`},
		{`oom_score_adj = 99999`, `config.oom_score_adj 99999`},
		{`ulimit { nofile = "" }`, `config.ulimit nofile = ""`},
		{`ulimit { nofile = "abc:1234" }`, `config.ulimit nofile = "abc:1234"`},
		{`ulimit { nofile = "1234:abc" }`, `config.ulimit nofile = "1234:abc"`},
		{`ulimit { nofile = "many" }`, `config.ulimit nofile = "many"`},
		{`ulimit { nofile = "2:1" }`, `config.ulimit nofile = "2:1"`},
		{`ulimit { nonsense = "1" }`, `config.ulimit nonsense = "1"`},
		{`sysctl { "vm.swappiness" = "1" }`, `config.sysctl "vm.swappiness"`},
		{`cap_add = ["nonsense"]`, `config.cap_add has nonsense`},
		{`cap_drop = ["nonsense"]`, `config.cap_drop has nonsense`},
		{`cgroupns = "shared"`, `config.cgroupns "shared"`},
		{`group_add = [""]`, `config.group_add has ""`},
		{`isolation = "hyperv"`, `config.isolation "hyperv"`},
		{"network_mode = \"own\"\nipv4_address = \"1.2.3\"", `config.ipv4_address "1.2.3" is not`},
		{"network_mode = \"own\"\nipv6_address = \"1.2.3.4\"", `config.ipv6_address "1.2.3.4" is not`},
		{`ipv4_address = "1.2.3.4"`, `config.ipv4_address "1.2.3.4" works only in a network of your own`},
		{"network_mode = \"bridge\"\nnetwork_aliases = [\"web\"]", `config.network_aliases "web" works only`},
		{`mac_address = "nonsense"`, `config.mac_address "nonsense" is not`},
		{"network_mode = \"host\"\nmac_address = \"02:68:b3:29:da:98\"", `cannot be given with network_mode "host"`},
		{`extra_hosts = ["nonsense"]`, `config.extra_hosts: "nonsense"`},
		{`extra_hosts = ["a:b"]`, `config.extra_hosts: "a:b"`},
	} {
		t.Run(c.hcl, func(t *testing.T) {
			t.Parallel()
			task := &drivers.TaskConfig{Name: "app"}
			must.NoError(t, task.EncodeConcreteDriverConfig(parseTask(t, c.hcl)))
			_, err := DecodeTask(task)
			must.ErrorContains(t, err, c.want)
		})
	}
}

// Nothing that works is refused.
func TestTaskConfigValid(t *testing.T) {
	t.Parallel()
	for _, hcl := range []string{
		``,
		"network_mode = \"own\"\nipv4_address = \"172.18.0.9\"\nipv6_address = \"2001:db8::9\"\nnetwork_aliases = [\"web\"]",
		"mac_address = \"02:68:b3:29:da:98\"",
		`extra_hosts = ["a:1.2.3.4", "b:2001:db8::1", "c:[2001:db8::1]", "d:host-gateway"]`,
		"cpuset_cpus = \"0-3,7\"\npids_limit = -1\noom_score_adj = -1000\nshm_size = 0",
		`sysctl { "net.core.somaxconn" = "1", "kernel.shmmax" = "1", "fs.mqueue.msg_max" = "1" }`,
		`ulimit { nofile = "1024:2048", memlock = "-1", core = "0" }`,
		"cap_add = [\"all\", \"CAP_BPF\"]\ncap_drop = [\"net_raw\"]\ncgroupns = \"host\"\ngroup_add = [\"video\", \"44\"]",
		"auth {\n username = \"u\"\n password = \"p\"\n}\nlabels { \"nomad\" = \"x\" }\nwork_dir = \"/srv\"",
	} {
		t.Run(hcl, func(t *testing.T) {
			t.Parallel()
			must.NoError(t, parseTask(t, hcl).Validate())
		})
	}
}

func TestPullTimeout(t *testing.T) {
	t.Parallel()
	must.Eq(t, 10*time.Minute, parseTask(t, `image_pull_timeout = "10m"`).PullLimit(time.Minute))
	must.Eq(t, time.Minute, parseTask(t, ``).PullLimit(time.Minute))
}
