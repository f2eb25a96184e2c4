// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Blame says which key of the job a refusal by Docker is about, where Docker's words
// tell: it speaks of its own options, and only it knows what the kernel, its plugins and
// the image can do.
func Blame(err error) error {
	if err == nil {
		return nil
	}
	text := strings.ToLower(err.Error())
	if unseenSource.MatchString(text) {
		return fmt.Errorf("Docker does not see the mounts that this driver makes in state_dir: have the agent and Docker share a "+
			"mount namespace, or see volumes.stage_sources: %w", err)
	}
	for _, known := range dockerWords() {
		if slices.ContainsFunc(known.words, func(words string) bool { return strings.Contains(text, words) }) {
			return fmt.Errorf("Docker refuses %s: %w", known.key, err)
		}
	}
	if _, after, found := strings.Cut(text, "network "); found && strings.HasSuffix(after, "not found") {
		return fmt.Errorf("Docker refuses config.network_mode: %w", err)
	}
	return err
}

// unseenSource matches the runtime's error for a staged source that it cannot find.
var unseenSource = regexp.MustCompile(`stat \S+/staging/attempts/\S+: not a directory`)

type keyWords struct {
	key   string
	words []string // any of them, in lower case
}

// dockerWords are the words in errors of Docker and runc that identify a key.
func dockerWords() []keyWords {
	return []keyWords{
		{"config.logging (or else the client's logging)", []string{"log driver", "logging plugin", "log-opt", "log opt", "logger:"}},
		{"config.storage_opt", []string{"storage-opt", "storage option", "daemon: unknown option"}},
		{"config.shm_size", []string{"shm size"}},
		{"config.oom_score_adj", []string{"oom_score_adj", "oom score"}},
		{"config.cpuset_cpus", []string{"requested cpus", "cpuset"}},
		{"config.sysctl", []string{"sysctl", "/proc/sys/"}},
		{"config.ulimit", []string{"rlimit", "ulimit"}},
		{"config.pids_limit", []string{"pids limit"}},
		{"config.group_add", []string{"unable to find group"}},
		{"user", []string{"unable to find user"}},
		{"config.ipv4_address or config.ipv6_address", []string{"user specified ip address", "no configured subnet"}},
		{"config.network_aliases", []string{"network-scoped alias"}},
		{"config.mac_address", []string{"mac-address"}},
		{"config.extra_hosts", []string{"bad format for add-host", "host-gateway", "custom host-to-ip mapping"}},
		{"config.hostname", []string{"hostname"}},
		{"config.ports", []string{"port is already allocated", "port publishing", "port exposing"}},
		{"config.dns_servers", []string{"conflicting options: dns"}},
		{"config.network_mode", []string{"no such network", "could not find network"}},
		{"config.volume_driver", []string{"volume plugin", "volumedriver"}},
		{"config.devices", []string{"gathering device information"}},
		{"config.work_dir", []string{"working directory", "chdir to cwd"}},
		{"config.cgroupns", []string{"cgroup namespace"}},
		{"config.userns_mode", []string{"user namespace"}},
		{"config.ipc_mode", []string{"ipc mode"}},
		{"config.pid_mode", []string{"pid mode"}},
		{"config.uts_mode", []string{"uts mode"}},
		{"config.security_opt", []string{"security-opt", "security opt", "seccomp", "apparmor"}},
		{"config.mount or config.volumes", []string{"invalid mount", "duplicate mount", "bind source path", "invalid volume"}},
		{"config.command", []string{"executable file not found"}},
	}
}
