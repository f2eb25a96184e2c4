// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"slices"

	"github.com/hashicorp/nomad/plugins/shared/hclspec"
)

// taskSpec is the schema of a job's `config` block: every key that Nomad's own
// Docker driver has ever known, since Nomad refuses a job with a key that is not
// in the schema. TaskConfig documents what the keys mean.
func taskSpec() *hclspec.Spec {
	return object(slices.Concat(processFields(), resourceFields(), securityFields(), networkFields(), storageFields())...)
}

func processFields() []field {
	return []field{
		{"image", hclspec.NewAttr("image", "string", true)},
		text("image_pull_timeout"),
		flag("force_pull"),
		text("load"),
		block("auth", text("username"), text("password"), text("email"), text("server_address")),
		flag("auth_soft_fail"),
		text("command"),
		texts("args"),
		texts("entrypoint"),
		text("work_dir"),
		text("hostname"),
		flag("tty"),
		flag("interactive"),
		flag("init"),
		textMap("labels"),
		block("healthchecks", flag("disable")),
		number("container_exists_attempts"),
		block("logging", text("type"), text("driver"), textMap("config")),
	}
}

func resourceFields() []field {
	return []field{
		flag("cpu_hard_limit"),
		withDefault(number("cpu_cfs_period"), `100000`),
		text("cpuset_cpus"),
		number("memory_hard_limit"),
		number("pids_limit"),
		number("shm_size"),
		textMap("ulimit"),
		textMap("sysctl"),
		attributes("storage_opt"),
		number("oom_score_adj"),
	}
}

func securityFields() []field {
	return []field{
		flag("privileged"),
		texts("cap_add"),
		texts("cap_drop"),
		texts("security_opt"),
		flag("readonly_rootfs"),
		text("runtime"),
		texts("group_add"),
		text("ipc_mode"),
		text("pid_mode"),
		text("uts_mode"),
		text("userns_mode"),
		text("cgroupns"),
		text("isolation"),
		blocks("devices", text("host_path"), text("container_path"), text("cgroup_permissions")),
	}
}

func networkFields() []field {
	return []field{
		text("network_mode"),
		texts("ports"),
		{"port_map", hclspec.NewAttr("port_map", "list(map(number))", false)},
		texts("network_aliases"),
		text("ipv4_address"),
		text("ipv6_address"),
		text("mac_address"),
		flag("advertise_ipv6_address"),
		texts("dns_servers"),
		texts("dns_search_domains"),
		texts("dns_options"),
		texts("extra_hosts"),
	}
}

func storageFields() []field {
	return []field{
		texts("volumes"),
		text("volume_driver"),
		blocks("mount", mountFields()...),
		blocks("mounts", mountFields()...),
	}
}

func mountFields() []field {
	return []field{
		withDefault(text("type"), `"volume"`),
		text("target"),
		text("source"),
		flag("readonly"),
		block("bind_options", text("propagation")),
		block("tmpfs_options", number("size"), number("mode")),
		block("volume_options",
			flag("no_copy"),
			textMap("labels"),
			block("driver_config", text("name"), textMap("options")),
		),
	}
}
