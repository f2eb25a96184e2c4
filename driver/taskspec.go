package driver

import (
	"slices"

	"github.com/hashicorp/nomad/plugins/shared/hclspec"
)

// taskSpec is the schema of a job's `config` block: every key that Nomad's own
// Docker driver has ever known, since Nomad refuses a job with a key that is not
// in the  TaskConfig documents what the keys mean.
func taskSpec() *hclspec.Spec {
	return Object(slices.Concat(processFields(), resourceFields(), securityFields(), networkFields(), storageFields())...)
}

func processFields() []Field {
	return []Field{
		Required("image", "string"),
		Text("image_pull_timeout"),
		Flag("force_pull"),
		Text("load"),
		Block("auth", Text("username"), Text("password"), Text("email"), Text("server_address")),
		Flag("auth_soft_fail"),
		Text("command"),
		Texts("args"),
		Texts("entrypoint"),
		Text("work_dir"),
		Text("hostname"),
		Flag("tty"),
		Flag("interactive"),
		Flag("init"),
		TextMap("labels"),
		Block("healthchecks", Flag("disable")),
		Number("container_exists_attempts"),
		Block("logging", Text("type"), Text("driver"), TextMap("config")),
	}
}

func resourceFields() []Field {
	return []Field{
		Flag("cpu_hard_limit"),
		Default(Number("cpu_cfs_period"), `100000`),
		Text("cpuset_cpus"),
		Number("memory_hard_limit"),
		Number("pids_limit"),
		Number("shm_size"),
		TextMap("ulimit"),
		TextMap("sysctl"),
		Attributes("storage_opt"),
		Number("oom_score_adj"),
	}
}

func securityFields() []Field {
	return []Field{
		Flag("privileged"),
		Texts("cap_add"),
		Texts("cap_drop"),
		Texts("security_opt"),
		Flag("readonly_rootfs"),
		Text("runtime"),
		Texts("group_add"),
		Text("ipc_mode"),
		Text("pid_mode"),
		Text("uts_mode"),
		Text("userns_mode"),
		Text("cgroupns"),
		Text("isolation"),
		Blocks("devices", Text("host_path"), Text("container_path"), Text("cgroup_permissions")),
	}
}

func networkFields() []Field {
	return []Field{
		Text("network_mode"),
		Texts("ports"),
		Attr("port_map", "list(map(number))"),
		Texts("network_aliases"),
		Text("ipv4_address"),
		Text("ipv6_address"),
		Text("mac_address"),
		Flag("advertise_ipv6_address"),
		Texts("dns_servers"),
		Texts("dns_search_domains"),
		Texts("dns_options"),
		Texts("extra_hosts"),
	}
}

func storageFields() []Field {
	return []Field{
		Texts("volumes"),
		Text("volume_driver"),
		Blocks("mount", mountFields()...),
		Blocks("mounts", mountFields()...),
	}
}

func mountFields() []Field {
	return []Field{
		Default(Text("type"), `"volume"`),
		Text("target"),
		Text("source"),
		Flag("readonly"),
		Block("bind_options", Text("propagation")),
		Block("tmpfs_options", Number("size"), Number("mode")),
		Block("volume_options",
			Flag("no_copy"),
			TextMap("labels"),
			Block("driver_config", Text("name"), TextMap("options")),
		),
	}
}
