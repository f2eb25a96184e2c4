// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/helper/pluginutils/hclutils"
	"github.com/shoenig/test/must"
)

// parseConfig reads an operator's config block as Nomad does.
func parseConfig(t *testing.T, hcl string) Config {
	t.Helper()
	var c Config
	hclutils.NewConfigParser(Spec()).ParseHCL(t, "config {\n"+hcl+"\n}", &c)
	return c
}

func TestConfigDefaults(t *testing.T) {
	t.Parallel()
	for name, hcl := range map[string]string{
		"nothing":      ``,
		"empty blocks": "auth {}\ntls {}\ngc {}\nlogging {}\nvolumes {}\ntable {}\nallowed_modes {}",
		"empty texts": "image_pull_timeout = \"\"\npull_activity_timeout = \"\"\ninfra_image_pull_timeout = \"\"\n" +
			"gc {\n image_delay = \"\"\n dangling_containers {\n period = \"\"\n creation_grace = \"\"\n }\n}",
		"empty block":   "gc { dangling_containers {} }",
		"partial block": "gc { dangling_containers { dry_run = false } }",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := parseConfig(t, hcl).Settings()
			must.NoError(t, err)
			must.Eq(t, "nvidia", s.NvidiaRuntime)
			must.Eq(t, time.Minute, s.ClaimWait)
			must.Eq(t, 5*time.Minute, s.PullLimit)
			must.Eq(t, 2*time.Minute, s.PullIdle)
			must.Eq(t, 5*time.Minute, s.InfraPullLimit)
			must.Eq(t, 5*time.Minute, s.DanglingPeriod)
			must.Eq(t, 5*time.Minute, s.DanglingGrace)
			must.True(t, s.GC.Container)
			must.True(t, s.GC.Image)
			must.Eq(t, 3*time.Minute, s.ImageDelay)
			must.True(t, s.GC.Dangling.Enabled)
			must.False(t, s.AllowPrivileged)
			must.False(t, s.AllowPrivilegedGPU)
			must.False(t, s.Volumes.Enabled)
			must.False(t, s.AllowWritableLogs)
			must.False(t, s.CompatLabels)
			must.SliceEmpty(t, s.Warnings(false))
			must.Eq(t, []string{"runc", "nvidia"}, s.AllowRuntimes)
			must.SliceLen(t, 13, s.AllowCaps)
			must.SliceNotContains(t, s.AllowCaps, "NET_RAW")
			must.Eq(t, DefaultLogging{Type: "json-file", Config: map[string]string{"max-file": "2", "max-size": "2m"}}, s.Logging)
			must.Eq(t, "consul", s.Table.Store)
			must.Eq(t, "gpu-mem", s.Table.Prefix)
		})
	}
}

// An agent's configuration in JSON may have null for what it leaves out.
func TestConfigNullIsUnset(t *testing.T) {
	t.Parallel()
	bodies := []string{
		`"gc":{"image":null,"image_delay":null,"dangling_containers":null}`, `"gc":{"dangling_containers":{"period":null}}`, `"volumes":{"enabled":null}`,
	}
	for key := range Spec().GetObject().GetAttributes() {
		bodies = append(bodies, fmt.Sprintf("%q:null", key))
	}
	want, err := parseConfig(t, ``).Settings()
	must.NoError(t, err)
	for _, body := range bodies {
		var c Config
		hclutils.NewConfigParser(Spec()).ParseJson(t, `{"Config":{`+body+`}}`, &c)
		got, err := c.Settings()
		must.NoError(t, err)
		must.Eq(t, want.Config, got.Config, must.Sprint(body))
	}
}

// What is wrong is said in one sentence with the key and the value.
func TestConfigErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ hcl, want string }{
		{`claim_timeout = "soon"`, `claim_timeout: invalid duration "soon"`},
		{`claim_timeout = ""`, `claim_timeout: invalid duration ""`},
		{`claim_timeout = "-1s"`, `claim_timeout: invalid duration "-1s", want at least`},
		{`pull_activity_timeout = "10s"`, `pull_activity_timeout: invalid duration "10s", want at least 1m0s`},
		{"gc { dangling_containers { creation_grace = \"1s\" } }", `gc.dangling_containers.creation_grace: invalid duration "1s", want at least`},
		{`state_dir = "state"`, `state_dir = "state" is not an absolute path`},
		{`state_dir = "/` + strings.Repeat("d", 92) + `"`,
			"is too long for the socket log-pipes.sock in it, want at most 92 bytes"},
		{`nvidia_runtime = ""`, `nvidia_runtime = ""`},
		{"gc { image_delay = \"1d\" }", `gc.image_delay: invalid duration "1d"`},
		{"table { store = \"etcd\" }", `table.store = "etcd"`},
		{`container_exists_attempts = 0`, `container_exists_attempts = 0`},
		{`endpoint = "foo://bar"`, `endpoint = "foo://bar"`},
		{`endpoint = "127.0.0.1:2375"`, `endpoint = "127.0.0.1:2375"`},
		{`endpoint = "unix://"`, `endpoint = "unix://"`},
		{`allow_caps = ["nonsense"]`, `allow_caps has nonsense`},
		{`oom_score_adj = 99999`, `oom_score_adj = 99999`},
		{`allowed_devices = ["sda"]`, `allowed_devices has "sda"`},
		{`allowed_devices = ["/dev/../etc/*"]`, `allowed_devices has "/dev/../etc/*"`},
		{`volumes { selinuxlabel = "zzz" }`, `volumes.selinuxlabel = "zzz"`},
	} {
		t.Run(c.hcl, func(t *testing.T) {
			t.Parallel()
			_, err := parseConfig(t, c.hcl).Settings()
			must.ErrorContains(t, err, c.want)
		})
	}
}
