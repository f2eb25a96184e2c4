package driver

import (
	"fmt"
	"strings"
)

// blame says which key of the job a refusal by Docker is about, where Docker's words
// tell: it speaks of its own options, and only it knows what the kernel, its plugins and
// the image can do.
func blame(err error) error {
	if err == nil {
		return nil
	}
	text := strings.ToLower(err.Error())
	for _, known := range []struct{ words, key string }{
		{"log driver", "config.logging (or else the client's logging)"},
		{"log-opt", "config.logging (or else the client's logging)"},
		{"log opt", "config.logging (or else the client's logging)"},
		{"logger:", "config.logging (or else the client's logging)"},
		{"storage-opt", "config.storage_opt"},
		{"storage option", "config.storage_opt"},
		{"shm size", "config.shm_size"},
		{"oom_score_adj", "config.oom_score_adj"},
		{"oom score", "config.oom_score_adj"},
		{"requested cpus", "config.cpuset_cpus"},
		{"cpuset", "config.cpuset_cpus"},
		{"sysctl", "config.sysctl"},
		{"rlimit", "config.ulimit"},
		{"ulimit", "config.ulimit"},
		{"pids limit", "config.pids_limit"},
		{"unable to find group", "config.group_add"},
		{"unable to find user", "user"},
		{"user specified ip address", "config.ipv4_address or config.ipv6_address"},
		{"no configured subnet", "config.ipv4_address or config.ipv6_address"},
		{"network-scoped alias", "config.network_aliases"},
		{"mac-address", "config.mac_address"},
		{"bad format for add-host", "config.extra_hosts"},
		{"host-gateway", "config.extra_hosts"},
		{"hostname", "config.hostname"},
		{"port is already allocated", "config.ports"},
		{"no such network", "config.network_mode"},
		{"could not find network", "config.network_mode"},
		{"volume plugin", "config.volume_driver"},
		{"volumedriver", "config.volume_driver"},
		{"gathering device information", "config.devices"},
		{"working directory", "config.work_dir"},
		{"chdir to cwd", "config.work_dir"},
		{"cgroup namespace", "config.cgroupns"},
		{"user namespace", "config.userns_mode"},
		{"ipc mode", "config.ipc_mode"},
		{"pid mode", "config.pid_mode"},
		{"uts mode", "config.uts_mode"},
		{"security-opt", "config.security_opt"},
		{"security opt", "config.security_opt"},
		{"seccomp", "config.security_opt"},
		{"apparmor", "config.security_opt"},
		{"invalid mount", "config.mount or config.volumes"},
		{"duplicate mount", "config.mount or config.volumes"},
		{"bind source path", "config.mount or config.volumes"},
		{"invalid volume", "config.mount or config.volumes"},
		{"executable file not found", "config.command"},
	} {
		if strings.Contains(text, known.words) {
			return fmt.Errorf("Docker refuses %s: %w", known.key, err)
		}
	}
	if _, after, found := strings.Cut(text, "network "); found && strings.HasSuffix(after, "not found") {
		return fmt.Errorf("Docker refuses config.network_mode: %w", err)
	}
	return err
}
