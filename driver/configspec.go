package driver

import (
	"fmt"
	"runtime"

	"github.com/hashicorp/nomad/drivers/shared/capabilities"
	"github.com/hashicorp/nomad/plugins/shared/hclspec"

	"nomad-gpu-mem/internal/tableconfig"
)

// configSpec is the schema of the operator's `plugin "..." { config { ... } }`.
// Defaults stand at the leaves and are repeated in Config.settings for blocks
// that are missing as a whole.
func configSpec() *hclspec.Spec {
	return Object(
		Text("endpoint"),
		Block("tls", Text("cert"), Text("key"), Text("ca")),
		Block("auth", Text("config"), Text("helper")),

		Default(Text("nvidia_runtime"), `"nvidia"`),
		Default(Text("gpu_injection"), `"auto"`),
		Flag("allow_privileged_gpu"),
		Block("gpu_observer", Texts("jobs"), Texts("images"), Default(Texts("capabilities"), `["utility"]`)),
		Default(Text("claim_timeout"), `"60s"`),
		Default(Text("state_dir"), `"/var/lib/nomad-gpu-mem"`),
		BlockOf("table", tableconfig.Spec()),

		Flag("allow_privileged"),
		Default(Texts("allow_caps"), capabilities.HCLSpecLiteral),
		Default(Texts("allow_runtimes"), `["runc", "nvidia"]`),
		Block("allowed_modes", Texts("pid"), Texts("ipc"), Texts("userns"), Texts("uts"), Texts("cgroupns"), Texts("network")),
		Texts("allowed_devices"),
		Block("volumes", Flag("enabled"), Text("selinuxlabel"), Flag("stage_sources")),
		Flag("allow_writable_logs"),
		Number("pids_limit"),
		Number("oom_score_adj"),

		Texts("extra_labels"),
		Flag("compat_labels"),
		Block("logging", Text("type"), Attributes("config")),
		Flag("disable_log_collection"),

		Default(Text("infra_image"), fmt.Sprintf(`"registry.k8s.io/pause-%s:3.3"`, runtime.GOARCH)),
		Default(Text("infra_image_pull_timeout"), `"5m"`),
		Default(Text("image_pull_timeout"), `"5m"`),
		Default(Text("pull_activity_timeout"), `"2m"`),
		Default(Number("container_exists_attempts"), `5`),

		Default(Block("gc",
			Default(Flag("image"), `true`),
			Default(Text("image_delay"), `"3m"`),
			Default(Flag("container"), `true`),
			Default(Block("dangling_containers",
				Default(Flag("enabled"), `true`),
				Default(Flag("dry_run"), `false`),
				Default(Text("period"), `"5m"`),
				Default(Text("creation_grace"), `"5m"`),
			), danglingDefault),
		), `{ image = true, image_delay = "3m", container = true, dangling_containers = `+danglingDefault+` }`),

		Flag("windows_allow_insecure_container_admin"),
	)
}

const danglingDefault = `{ enabled = true, dry_run = false, period = "5m", creation_grace = "5m" }`
