// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package attack

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// rowsOfSecurity attack the isolation of a container from the host.
func rowsOfSecurity() (all []attack) {
	for _, c := range []struct{ name, config, words string }{
		{"cgroups-writable", `security_opt = ["writable-cgroups=true"]`, "writable-cgroups"},
		{"cgroups-writable-colon", `security_opt = ["writable-cgroups:true"]`, "writable-cgroups"},
		{"cgroups-writable-bare", `security_opt = ["writable-cgroups"]`, "writable-cgroups"},
		{"cgroups-writable-blank", `security_opt = [" writable-cgroups=true"]`, "writable-cgroups"},
		{"cgroups-of-host", `cgroupns = "host"`, `"CgroupnsMode":"host"`},
		{"cgroups-both", "security_opt = [\"writable-cgroups=true\"]\ncgroupns = \"host\"", "writable-cgroups"},
		{"security-unknown", `security_opt = ["nonsense=1"]`, "nonsense"},
		{"security-systempaths", `security_opt = ["systempaths=unconfined"]`, "systempaths"},
		{"security-comma", `security_opt = ["seccomp=unconfined,writable-cgroups=true"]`, "writable-cgroups"},
	} {
		all = append(all, attack{
			name: c.name, tries: "to get out of its device filter: " + strings.ReplaceAll(c.config, "\n", ", "), looks: "what Docker was asked for, control groups as mounted",
			job: job{config: c.config, script: escapeFilter}, look: both(never(c.words), ownNamespace("cgroup"), cgroupsReadOnly, sees()),
		})
	}
	all = append(all, attack{
		name: "cgroups-escape-v2", tries: "to leave its device filter by moving to another control group, with both options", looks: "whether it opened a GPU",
		needs: func(*scene) string {
			if hasDeviceLists() {
				return "control groups are of version 1 here; the rows cgroups-* hold that Docker is never asked for it"
			}
			return ""
		},
		job: job{config: "security_opt = [\"writable-cgroups=true\"]\ncgroupns = \"host\"", script: `mknod /x {gpu1-node}
			echo $$ >/sys/fs/cgroup/cgroup.procs; ( exec </x ) && touch /local/opened`},
		look: opened,
	}, attack{
		name: "cgroups-escape-v1", tries: "to let itself open every device, by its own control group", looks: "the container's device access",
		job: job{config: `security_opt = ["seccomp=unconfined", "apparmor=unconfined"]`, script: escapeFilter}, look: both(cgroupsReadOnly, sees()),
	})
	for _, kind := range []struct{ key, ns string }{{"pid_mode", "pid"}, {"ipc_mode", "ipc"}, {"uts_mode", "uts"}} {
		for _, mode := range []string{"host", "container:{victim}", "container:{victim-name}"} {
			if kind.key == "uts_mode" && mode != "host" {
				continue
			}
			all = append(all, attack{
				name: kind.ns + "-of-" + strings.NewReplacer(":{", "-", "}", "").Replace(mode), tries: fmt.Sprintf("%s = %q", kind.key, mode), looks: "the container's namespaces",
				job: job{config: fmt.Sprintf("%s = %q", kind.key, mode), script: `ps; hostname ` + written}, look: ownNamespace(kind.ns),
			})
		}
	}
	return append(all, rowsOfPrivileges()...)
}

// escapeFilter are the commands of a process with writable control groups.
const escapeFilter = `mount -o remount,rw /sys/fs/cgroup; mount -o remount,rw /sys/fs/cgroup/devices
	echo a >/sys/fs/cgroup/devices/devices.allow; echo $$ >/sys/fs/cgroup/devices/tasks; echo $$ >/sys/fs/cgroup/cgroup.procs
	mkdir /sys/fs/cgroup/devices/x && echo $$ >/sys/fs/cgroup/devices/x/tasks
	for d in unified ''; do echo $$ >/sys/fs/cgroup/$d/cgroup.procs; done
	unshare -Ur true; mkdir -p /m; mount -t cgroup -o devices none /m && echo a >/m/devices.allow`

func rowsOfPrivileges() []attack {
	capability := func(name string) attack {
		return attack{
			name: "cap-add-" + name, tries: `cap_add = ["` + name + `"]`, looks: "the container's capabilities",
			job: job{config: fmt.Sprintf("cap_add = [%q]", name), script: `true`}, look: unprivileged,
		}
	}
	const finTimeout = "/proc/sys/net/ipv4/tcp_fin_timeout"
	return []attack{
		capability("sys_admin"), capability("all"), capability("ALL"), capability("CAP_SYS_ADMIN"), capability("sys_rawio"), capability("sys_ptrace"),
		capability("sys_module"), capability("net_admin"), capability("dac_read_search"), capability("bpf"),
		{
			name: "userns-of-host", tries: `userns_mode = "host"`, looks: "what Docker was asked for",
			job: job{config: `userns_mode = "host"`, script: `true`}, look: never(`"UsernsMode":"host"`),
		},
		{
			name: "network-of-another", tries: "to join the other job's network by its ID", looks: "the container's namespaces",
			job: job{config: `network_mode = "container:{victim}"`, script: `true`}, look: ownNamespace("net"),
		},
		{
			name: "network-of-another-by-name", tries: "to join the other job's network by its name", looks: "the container's namespaces",
			job: job{config: `network_mode = "container:{victim-name}"`, script: `true`}, look: ownNamespace("net"),
		},
		{
			name: "privileged", tries: "privileged = true", looks: "the container's capabilities",
			job: job{config: `privileged = true`, script: `true`}, look: both(unprivileged, sees()),
		},
		{
			name: "privileged-with-slice", tries: "privileged = true with a slice, where privileged tasks are allowed", looks: "GPUs that the container reaches",
			operator: `allow_privileged = true`, job: job{config: `privileged = true`, script: `true`, slice: true}, look: sees(0),
		},
		{
			name: "oom-score", tries: "to have others killed when memory runs out: oom_score_adj = -1000", looks: "the process's score on the host",
			job: job{config: `oom_score_adj = -1000`, script: `true`}, look: both(scored, never(`"OomScoreAdj":-1000`)),
		},
		{
			name: "oom-score-by-itself", tries: "the same, from the container", looks: "the process's score on the host",
			job: job{script: `echo -1000 >/proc/self/oom_score_adj; echo -1000 >/proc/1/oom_score_adj`}, look: scored,
		},
		{
			name: "sysctl-kernel", tries: "to have its program run by the host's kernel at a crash: kernel.core_pattern", looks: "the host's setting",
			job:  job{config: `sysctl { "kernel.core_pattern" = "|/local/x" }`, script: `true`},
			look: kept("/proc/sys/kernel/core_pattern"),
		},
		{
			name: "sysctl-spelled", tries: "the same, by net/../kernel/core_pattern", looks: "the host's setting",
			job:  job{config: `sysctl { "net/../kernel/core_pattern" = "|/local/x" }`, script: `true`},
			look: kept("/proc/sys/kernel/core_pattern"),
		},
		{
			name: "sysctl-written", tries: "the same, by /proc/sys in the container", looks: "the host's setting",
			job: job{config: `security_opt = ["seccomp=unconfined"]`, script: `mount -o remount,rw /proc/sys; umount /proc/sys
				v=$(cat /proc/sys/kernel/core_pattern); echo "$v" >/proc/sys/kernel/core_pattern && touch /local/could-write`},
			look: couldNotWrite,
		},
		{
			name: "sysctl-of-host-network", tries: "to change the host's network settings, in its network", looks: "the host's setting",
			job:  job{config: "network_mode = \"host\"\nsysctl { \"net.ipv4.tcp_fin_timeout\" = \"47\" }", script: `true`},
			look: kept(finTimeout),
		},
		{
			name: "ulimit", tries: "limits beyond the host's", looks: "what every row checks",
			job: job{config: `ulimit { nofile = "99999999999" }`, script: `true`},
		},
		{
			name: "volumes-of-others", tries: "to have the other job's volumes by the names of its directories", looks: "what every row checks",
			job: job{config: `volumes = ["../../{victim-alloc}/bank:/o"]`, script: `ls /o; touch /o/local/x; mv /o/local /o/y`}, look: othersDirs,
		},
	}
}

// scored checks that the kernel does not spare the container's processes.
func scored(_ *scene, in *intruder) error {
	if !in.runs() {
		return nil
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", in.container.State.Pid))
	if err != nil {
		return err
	}
	if score, err := strconv.Atoi(strings.TrimSpace(string(text))); err != nil || score < 0 {
		return fmt.Errorf("the container's first process has the score %s", text)
	}
	return nil
}

// cgroupsReadOnly checks that the container can write to no mounted control group.
func cgroupsReadOnly(_ *scene, in *intruder) error {
	if !in.runs() {
		return nil
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/mounts", in.container.State.Pid))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) > 3 && strings.HasPrefix(fields[2], "cgroup") && strings.HasPrefix(fields[3]+",", "rw,") {
			return fmt.Errorf("%s is mounted writable at %s", fields[2], fields[1])
		}
	}
	return nil
}

func opened(_ *scene, in *intruder) error {
	if _, err := in.local.Stat("opened"); err == nil {
		return errors.New("the task opened a GPU that it was not given")
	}
	return nil
}

func couldNotWrite(_ *scene, in *intruder) error {
	if _, err := in.local.Stat("could-write"); err == nil {
		return errors.New("the task can write settings of the host's kernel")
	}
	return nil
}

// othersDirs checks that the other job's directories are as the client made them.
func othersDirs(s *scene, _ *intruder) error {
	found, err := treeOf(s.victim.alloc.dir)
	if err == nil && len(found) != 9 {
		err = fmt.Errorf("the other job's allocation has %d files and directories: %v", len(found), found)
	}
	return err
}
