// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package config

import (
	"slices"

	"github.com/hashicorp/nomad/plugins/shared/hclspec"

	"nomad-gpu-mem/internal/schema"
)

// TaskSpec is the schema of a job's `config` block: every key that Nomad's own
// Docker driver has ever known, since Nomad refuses a job with a key that is not
// in the schema. TaskConfig documents what the keys mean.
func TaskSpec() *hclspec.Spec {
	return schema.Object(slices.Concat(processFields(), resourceFields(), securityFields(), networkFields(), storageFields())...)
}

func processFields() []schema.Field {
	return []schema.Field{
		schema.Required("image", "string"),
		schema.Text("image_pull_timeout"),
		schema.Flag("force_pull"),
		schema.Text("load"),
		schema.Block("auth", schema.Text("username"), schema.Text("password"), schema.Text("email"), schema.Text("server_address")),
		schema.Flag("auth_soft_fail"),
		schema.Text("command"),
		schema.Texts("args"),
		schema.Texts("entrypoint"),
		schema.Text("work_dir"),
		schema.Text("hostname"),
		schema.Flag("tty"),
		schema.Flag("interactive"),
		schema.Flag("init"),
		schema.TextMap("labels"),
		schema.Block("healthchecks", schema.Flag("disable")),
		schema.Number("container_exists_attempts"),
		schema.Block("logging", schema.Text("type"), schema.Text("driver"), schema.TextMap("config")),
	}
}

func resourceFields() []schema.Field {
	return []schema.Field{
		schema.Flag("cpu_hard_limit"),
		schema.Default(schema.Number("cpu_cfs_period"), `100000`),
		schema.Text("cpuset_cpus"),
		schema.Number("memory_hard_limit"),
		schema.Number("pids_limit"),
		schema.Number("shm_size"),
		schema.TextMap("ulimit"),
		schema.TextMap("sysctl"),
		schema.Attributes("storage_opt"),
		schema.Number("oom_score_adj"),
	}
}

func securityFields() []schema.Field {
	return []schema.Field{
		schema.Flag("privileged"),
		schema.Texts("cap_add"),
		schema.Texts("cap_drop"),
		schema.Texts("security_opt"),
		schema.Flag("readonly_rootfs"),
		schema.Text("runtime"),
		schema.Texts("group_add"),
		schema.Text("ipc_mode"),
		schema.Text("pid_mode"),
		schema.Text("uts_mode"),
		schema.Text("userns_mode"),
		schema.Text("cgroupns"),
		schema.Text("isolation"),
		schema.Blocks("devices", schema.Text("host_path"), schema.Text("container_path"), schema.Text("cgroup_permissions")),
	}
}

func networkFields() []schema.Field {
	return []schema.Field{
		schema.Text("network_mode"),
		schema.Texts("ports"),
		schema.Attr("port_map", "list(map(number))"),
		schema.Texts("network_aliases"),
		schema.Text("ipv4_address"),
		schema.Text("ipv6_address"),
		schema.Text("mac_address"),
		schema.Flag("advertise_ipv6_address"),
		schema.Texts("dns_servers"),
		schema.Texts("dns_search_domains"),
		schema.Texts("dns_options"),
		schema.Texts("extra_hosts"),
	}
}

func storageFields() []schema.Field {
	return []schema.Field{
		schema.Texts("volumes"),
		schema.Text("volume_driver"),
		schema.Blocks("mount", mountFields()...),
		schema.Blocks("mounts", mountFields()...),
	}
}

func mountFields() []schema.Field {
	return []schema.Field{
		schema.Default(schema.Text("type"), `"volume"`),
		schema.Text("target"),
		schema.Text("source"),
		schema.Flag("readonly"),
		schema.Block("bind_options", schema.Text("propagation")),
		schema.Block("tmpfs_options", schema.Number("size"), schema.Number("mode")),
		schema.Block("volume_options",
			schema.Flag("no_copy"),
			schema.TextMap("labels"),
			schema.Block("driver_config", schema.Text("name"), schema.TextMap("options")),
		),
	}
}
