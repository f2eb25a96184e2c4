// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"bytes"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/plugins/base"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/driver/configtest"
)

// What can be seen to be missing when the service begins is reported then.
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
	must.NoError(t, base.MsgPackEncode(&encoded, configtest.Plugin(t, ``)))
	must.NoError(t, p.SetConfig(&base.Config{PluginConfig: encoded}))
	must.NoError(t, p.SetConfig(&base.Config{PluginConfig: encoded}))

	must.NoError(t, base.MsgPackEncode(&encoded, configtest.Plugin(t, `claim_timeout = "x"`)))
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
