// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/drivers/shared/capabilities"
	"github.com/hashicorp/nomad/helper/pluginutils/hclspecutils"
	"github.com/hashicorp/nomad/helper/pluginutils/hclutils"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/driver/config"
)

// Whatever a job says, its container gets no GPU that was not booked, no path of the
// host that the operator did not allow, and no privilege.
func FuzzJob(f *testing.F) {
	for _, seed := range []string{
		`{"image":"a"}`,
		`{"image":"a","volumes":["local:/x:ro,z","../../y:/z"],"ports":["http"],"port_map":[{"http":80}]}`,
		`{"image":"a","security_opt":["seccomp=/etc/hostname","seccomp:local/x"],"ulimit":[{"nofile":"1:2"}]}`,
		`{"image":"a","mount":[{"type":"bind","source":"/etc","target":"/x","bind_options":{"propagation":"rshared"}}]}`,
		`{"image":"a","mounts":[{"type":"tmpfs","target":"/x"},{"target":"/y","source":"v"}],"volume_driver":"pxd"}`,
		`{"image":"a","devices":[{"host_path":"/dev/null"},{"host_path":"/dev/nvidia0"}],"runtime":"nvidia"}`,
		`{"image":"a","pid_mode":"host","ipc_mode":"container:x","uts_mode":"host","userns_mode":"host","cgroupns":"host"}`,
		`{"image":"a","privileged":true,"cap_add":["sys_admin"],"cap_drop":["all"],"extra_hosts":["a:b"],"dns_servers":["x"]}`,
	} {
		f.Add(seed)
	}
	spec, diags := hclspecutils.Convert(config.TaskSpec())
	must.SliceEmpty(f, diags)
	settings := config.Settings{Config: config.Config{
		NvidiaRuntime: "nvidia", AllowRuntimes: []string{"runc", "nvidia"}, AllowCaps: capabilities.NomadDefaults().Slice(false),
	}}
	allocDir := f.TempDir()
	must.NoError(f, os.MkdirAll(filepath.Join(allocDir, "app", "local"), 0o755))
	f.Fuzz(func(t *testing.T, text string) {
		var raw map[string]any
		if json.Unmarshal([]byte(text), &raw) != nil {
			return
		}
		value, diags, _ := hclutils.ParseHclInterface(raw, spec, nil)
		if diags.HasErrors() {
			return
		}
		task := &drivers.TaskConfig{Name: "app", AllocID: allocID, AllocDir: allocDir}
		if task.EncodeDriverConfig(value) != nil {
			return
		}
		job, err := config.DecodeTask(task)
		if err != nil {
			return
		}
		built, _, err := (&Input{Task: task, Job: job, Settings: settings}).Build()
		if err != nil {
			return
		}
		host := built.Host
		must.False(t, host.Privileged)
		must.NotEq(t, "nvidia", host.Runtime)
		must.SliceContains(t, built.Config.Env, "NVIDIA_VISIBLE_DEVICES=void")
		must.False(t, host.PidMode.IsHost() || host.IpcMode.IsHost() || host.UTSMode.IsHost() || host.UsernsMode.IsHost())
		for _, bind := range host.Binds {
			source, _, _ := strings.Cut(bind, ":")
			must.True(t, below(allocDir, source), must.Sprint(bind))
		}
		for _, m := range host.Mounts {
			must.True(t, m.Type == "tmpfs" || m.Type == "bind" && below(allocDir, m.Source), must.Sprint(m))
		}
		for _, d := range host.Devices {
			must.False(t, strings.HasPrefix(d.PathOnHost, "/dev/nvidia"))
		}
		must.False(t, slices.ContainsFunc(host.SecurityOpt, func(o string) bool {
			return strings.HasPrefix(o, "seccomp=/") || strings.HasPrefix(o, "seccomp:/")
		}))
	})
}
