// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package driver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

// Options that go together are in force in the container, as it sees them.
func TestServiceOptionsAreInForce(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	w.config += "\nallow_privileged = true\nextra_labels = [\"job_id\"]\nvolumes { enabled = true }"
	d := w.boot()
	task, out := w.script(`
		echo user=$(id -u):$(id -G) dir=$(pwd) host=$(hostname)
		echo files=$(ulimit -n) oom=$(cat /proc/self/oom_score_adj) somaxconn=$(cat /proc/sys/net/core/somaxconn)
		echo caps=$(awk '/CapBnd/ { print $2 }' /proc/self/status) privileges=$(awk '/NoNewPrivs/ { print $2 }' /proc/self/status)
		echo root=$(touch /x 2>/dev/null && echo rw || echo ro) logs=$(touch /alloc/logs/x 2>/dev/null && echo rw || echo ro)
		echo copy=$(touch /copy/logs/x 2>/dev/null && echo rw || echo ro) volume=$(cat /v/file)
		echo tmpfs=$(awk '$2 == "/t" { print $3 }' /proc/mounts) null=$(ls /dev/n)
		awk '/nameserver|search|options/' /etc/resolv.conf; awk '/1.2.3.4/' /etc/hosts
		echo shm=$(df -k /dev/shm | awk 'NR == 2 { print $2 }') ipc=$(readlink /proc/self/ns/ipc)`, `
		work_dir = "/srv"
		hostname = "h"
		ulimit { nofile = "1024:2048" }
		oom_score_adj = 500
		shm_size = 1048576
		sysctl { "net.core.somaxconn" = "77" }
		cap_drop = ["all"]
		cap_add = ["chown"]
		security_opt = ["no-new-privileges", "seccomp=local/profile.json"]
		readonly_rootfs = true
		group_add = ["12"]
		runtime = "runc"
		cgroupns = "host"
		network_mode = "bridge"
		dns_servers = ["192.0.2.53"]
		dns_search_domains = ["example.org"]
		dns_options = ["ndots:3"]
		extra_hosts = ["a:1.2.3.4"]
		devices = [{ host_path = "/dev/null", container_path = "/dev/n" }]
		volumes = ["local:/v:ro", "../alloc:/copy"]
		logging {
		  type = "json-file"
		  config { max-size = "1m" }
		}
		labels { a = "b" }
		healthchecks { disable = true }
		mount {
		  type   = "tmpfs"
		  target = "/t"
		  tmpfs_options { size = 4096 }
		}`)
	task.User = "65534"
	local := task.TaskDir().LocalDir
	must.NoError(t, os.WriteFile(filepath.Join(local, "profile.json"), []byte(`{ "defaultAction": "SCMP_ACT_ALLOW" }`), 0o600))
	must.NoError(t, os.WriteFile(filepath.Join(local, "file"), []byte("content"), 0o644))
	for _, dir := range []string{task.TaskDir().SharedAllocDir, task.TaskDir().LogDir} {
		must.NoError(t, os.Chmod(dir, 0o777)) // so that only the mount is in the way
	}
	d.run(t, task)
	must.True(t, d.ended(t, task).Successful())
	eventually(t, func() bool { return strings.Contains(out.Got(), "ipc=") })
	ipc, err := os.Readlink("/proc/self/ns/ipc")
	must.NoError(t, err)
	must.StrNotContains(t, out.Got(), ipc)
	for _, want := range []string{
		"user=65534:65534 12 dir=/srv host=h\n", "files=1024 oom=500 somaxconn=77\n", "caps=0000000000000001 privileges=1\n",
		"root=ro logs=ro\n", "copy=ro volume=content\n", "tmpfs=tmpfs null=/dev/n\n",
		"nameserver 192.0.2.53\n", "search example.org\n", "options ndots:3\n", "1.2.3.4\ta\n", "shm=1024 ",
	} {
		must.StrContains(t, out.Got(), want)
	}
}
