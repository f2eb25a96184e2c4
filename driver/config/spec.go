// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package config

import (
	"fmt"
	"runtime"

	"github.com/hashicorp/nomad/drivers/shared/capabilities"
	"github.com/hashicorp/nomad/plugins/shared/hclspec"

	"nomad-gpu-mem/internal/schema"
	"nomad-gpu-mem/internal/tableconfig"
)

// Spec is the schema of the operator's `plugin "..." { config { ... } }`.
// Defaults stand at the leaves, and again at blocks that may be missing as a whole. Config.Settings
// has them for empty values.
func Spec() *hclspec.Spec {
	return schema.Object(
		schema.Text("endpoint"),
		schema.Block("tls", schema.Text("cert"), schema.Text("key"), schema.Text("ca")),
		schema.Block("auth", schema.Text("config"), schema.Text("helper")),

		schema.Default(schema.Text("nvidia_runtime"), `"nvidia"`),
		schema.Default(schema.Text("gpu_injection"), `"auto"`),
		schema.Flag("allow_privileged_gpu"),
		schema.Block("gpu_observer", schema.Texts("jobs"), schema.Texts("images"), schema.Default(schema.Texts("capabilities"), `["utility"]`)),
		schema.Default(schema.Text("claim_timeout"), `"60s"`),
		schema.Default(schema.Text("state_dir"), `"/var/lib/nomad-gpu-mem"`),
		schema.BlockOf("table", tableconfig.Spec()),

		schema.Flag("allow_privileged"),
		schema.Default(schema.Texts("allow_caps"), capabilities.HCLSpecLiteral),
		schema.Default(schema.Texts("allow_runtimes"), `["runc", "nvidia"]`),
		schema.Block("allowed_modes", schema.Texts("pid"), schema.Texts("ipc"), schema.Texts("userns"), schema.Texts("uts"), schema.Texts("cgroupns"), schema.Texts("network")),
		schema.Texts("allowed_devices"),
		schema.Block("volumes", schema.Flag("enabled"), schema.Text("selinuxlabel"), schema.Flag("stage_sources")),
		schema.Flag("allow_writable_logs"),
		schema.Number("pids_limit"),
		schema.Number("oom_score_adj"),

		schema.Texts("extra_labels"),
		schema.Flag("compat_labels"),
		schema.Block("logging", schema.Text("type"), schema.Attributes("config")),
		schema.Flag("disable_log_collection"),

		schema.Default(schema.Text("infra_image"), fmt.Sprintf(`"registry.k8s.io/pause-%s:3.3"`, runtime.GOARCH)),
		schema.Default(schema.Text("infra_image_pull_timeout"), `"5m"`),
		schema.Default(schema.Text("image_pull_timeout"), `"5m"`),
		schema.Default(schema.Text("pull_activity_timeout"), `"2m"`),
		schema.Default(schema.Number("container_exists_attempts"), `5`),

		schema.Default(schema.Block("gc",
			schema.Default(schema.Flag("image"), `true`),
			schema.Default(schema.Text("image_delay"), `"3m"`),
			schema.Default(schema.Flag("container"), `true`),
			schema.Default(schema.Block("dangling_containers",
				schema.Default(schema.Flag("enabled"), `true`),
				schema.Default(schema.Flag("dry_run"), `false`),
				schema.Default(schema.Text("period"), `"5m"`),
				schema.Default(schema.Text("creation_grace"), `"5m"`),
			), danglingDefault),
		), `{ image = true, image_delay = "3m", container = true, dangling_containers = `+danglingDefault+` }`),

		schema.Flag("windows_allow_insecure_container_admin"),
	)
}

const danglingDefault = `{ enabled = true, dry_run = false, period = "5m", creation_grace = "5m" }`
