// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/helper/pluginutils/hclutils"
	"github.com/hashicorp/nomad/plugins/base"
	"github.com/shoenig/test/must"
)

// parseConfig reads an operator's config block as Nomad does.
func parseConfig(t *testing.T, hcl string) Config {
	t.Helper()
	var c Config
	hclutils.NewConfigParser(configSpec()).ParseHCL(t, "config {\n"+hcl+"\n}", &c)
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
			s, err := parseConfig(t, hcl).settings()
			must.NoError(t, err)
			must.Eq(t, "nvidia", s.NvidiaRuntime)
			must.Eq(t, time.Minute, s.claimTimeout)
			must.Eq(t, 5*time.Minute, s.pullTimeout)
			must.Eq(t, 2*time.Minute, s.pullIdle)
			must.Eq(t, 5*time.Minute, s.infraTimeout)
			must.Eq(t, 5*time.Minute, s.danglingEvery)
			must.Eq(t, 5*time.Minute, s.danglingGrace)
			must.True(t, s.GC.Container)
			must.True(t, s.GC.Image)
			must.Eq(t, 3*time.Minute, s.imageDelay)
			must.True(t, s.GC.Dangling.Enabled)
			must.False(t, s.AllowPrivileged)
			must.False(t, s.AllowPrivilegedGPU)
			must.False(t, s.Volumes.Enabled)
			must.False(t, s.AllowWritableLogs)
			must.False(t, s.CompatLabels)
			must.SliceEmpty(t, s.warnings(Name))
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
	for key := range configSpec().GetObject().GetAttributes() {
		bodies = append(bodies, fmt.Sprintf("%q:null", key))
	}
	want, err := parseConfig(t, ``).settings()
	must.NoError(t, err)
	for _, body := range bodies {
		var c Config
		hclutils.NewConfigParser(configSpec()).ParseJson(t, `{"Config":{`+body+`}}`, &c)
		got, err := c.settings()
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
		{`state_dir = "/` + strings.Repeat("d", 92) + `"`, "is too long for the socket log-pipes.sock in it: the most is 92 bytes"},
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
			_, err := parseConfig(t, c.hcl).settings()
			must.ErrorContains(t, err, c.want)
		})
	}
}

// What can be seen to be missing when the service begins is told then.
func TestSetConfigNeedsItsFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config = `auth { config = "/nope.json" }`
	p := w.newPlugin()
	t.Cleanup(p.Shutdown)
	must.ErrorContains(t, p.SetConfig(w.agentConfig()), `auth.config = "/nope.json"`)
}

// Nomad validates a configuration on instances that never serve: nothing may be
// opened or started on them.
func TestSetConfigWithoutAgentOnlyValidates(t *testing.T) {
	t.Parallel()
	p := New(t.Context(), quiet(), Name, nil, nil) // opening anything would panic
	var encoded []byte
	must.NoError(t, base.MsgPackEncode(&encoded, parseConfig(t, ``)))
	must.NoError(t, p.SetConfig(&base.Config{PluginConfig: encoded}))
	must.NoError(t, p.SetConfig(&base.Config{PluginConfig: encoded}))

	must.NoError(t, base.MsgPackEncode(&encoded, parseConfig(t, `claim_timeout = "x"`)))
	must.ErrorContains(t, p.SetConfig(&base.Config{PluginConfig: encoded}), `plugin "gpu-docker": claim_timeout: invalid duration "x"`)
}

// Without collection of logs Nomad opens no pipes, and starts no collector.
func TestLogCollectionCanBeOff(t *testing.T) {
	t.Parallel()
	for config, off := range map[string]bool{``: false, `disable_log_collection = true`: true} {
		w := newWorld(t)
		w.config = config
		capabilities, err := w.boot().plugin.Capabilities() // Nomad 1.6 does not carry it over gRPC
		must.NoError(t, err)
		must.Eq(t, off, capabilities.DisableLogCollection)
	}
}

// What has no effect stands in the plugin's log, which the agent shows.
func TestConfigWarningsAreLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	w := newWorld(t)
	w.config = `windows_allow_insecure_container_admin = true`
	p := w.newPlugin()
	p.logger = hclog.New(&hclog.LoggerOptions{Output: &log, Mutex: &sync.Mutex{}})
	must.NoError(t, p.SetConfig(w.agentConfig()))
	p.Shutdown()
	must.StrContains(t, log.String(), "[WARN]  windows_allow_insecure_container_admin has no effect")
}
