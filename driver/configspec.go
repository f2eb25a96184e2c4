// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

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
	return object(
		text("endpoint"),
		block("tls", text("cert"), text("key"), text("ca")),
		block("auth", text("config"), text("helper")),

		withDefault(text("nvidia_runtime"), `"nvidia"`),
		withDefault(text("gpu_injection"), `"auto"`),
		flag("allow_privileged_gpu"),
		block("gpu_observer", texts("jobs"), texts("images"), withDefault(texts("capabilities"), `["utility"]`)),
		withDefault(text("claim_timeout"), `"60s"`),
		withDefault(text("state_dir"), `"/var/lib/nomad-gpu-mem"`),
		field{"table", hclspec.NewBlock("table", false, tableconfig.Spec())},

		flag("allow_privileged"),
		withDefault(texts("allow_caps"), capabilities.HCLSpecLiteral),
		withDefault(texts("allow_runtimes"), `["runc", "nvidia"]`),
		block("allowed_modes", texts("pid"), texts("ipc"), texts("userns"), texts("uts"), texts("cgroupns"), texts("network")),
		texts("allowed_devices"),
		block("volumes", flag("enabled"), text("selinuxlabel"), flag("stage_sources")),
		flag("allow_writable_logs"),
		number("pids_limit"),
		number("oom_score_adj"),

		texts("extra_labels"),
		flag("compat_labels"),
		block("logging", text("type"), attributes("config")),
		flag("disable_log_collection"),

		withDefault(text("infra_image"), fmt.Sprintf(`"registry.k8s.io/pause-%s:3.3"`, runtime.GOARCH)),
		withDefault(text("infra_image_pull_timeout"), `"5m"`),
		withDefault(text("image_pull_timeout"), `"5m"`),
		withDefault(text("pull_activity_timeout"), `"2m"`),
		withDefault(number("container_exists_attempts"), `5`),

		withDefault(block("gc",
			withDefault(flag("image"), `true`),
			withDefault(text("image_delay"), `"3m"`),
			withDefault(flag("container"), `true`),
			withDefault(block("dangling_containers",
				withDefault(flag("enabled"), `true`),
				withDefault(flag("dry_run"), `false`),
				withDefault(text("period"), `"5m"`),
				withDefault(text("creation_grace"), `"5m"`),
			), danglingDefault),
		), `{ image = true, image_delay = "3m", container = true, dangling_containers = `+danglingDefault+` }`),

		flag("windows_allow_insecure_container_admin"),
	)
}

const danglingDefault = `{ enabled = true, dry_run = false, period = "5m", creation_grace = "5m" }`
