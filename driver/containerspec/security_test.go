// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

// What a container may do is Docker's set, less what the client does not allow.
func TestContainerCapabilities(t *testing.T) {
	t.Parallel()
	allDefaults := []string{
		"audit_write", "chown", "dac_override", "fowner", "fsetid", "kill", "mknod", "net_bind_service", "net_raw",
		"setfcap", "setgid", "setpcap", "setuid", "sys_chroot",
	}
	for _, c := range []struct {
		name, hcl, config string
		add, drop         []string
		refused           string
	}{
		{name: "none asked", add: []string{}, drop: []string{"net_raw"}},
		{name: "add allowed", hcl: "cap_add = [\"fowner\", \"mknod\"]\ncap_drop = [\"all\"]", add: []string{"fowner", "mknod"}, drop: []string{"all"}},
		{name: "add forbidden", hcl: `cap_add = ["net_admin"]`, refused: "net_admin"},
		{name: "add what Docker has and the client has not", hcl: `cap_add = ["net_raw"]`, refused: "net_raw"},
		{
			name: "in other spellings", hcl: "cap_add = [\"CAP_FOWNER\", \"Chown\"]\ncap_drop = [\"CAP_KILL\"]",
			add: []string{"chown", "fowner"}, drop: []string{"kill", "net_raw"},
		},
		{name: "drop", hcl: `cap_drop = ["fowner", "mknod", "net_raw"]`, add: []string{}, drop: []string{"fowner", "mknod", "net_raw"}},
		{name: "few allowed, all dropped", hcl: `cap_drop = ["all"]`, config: `allow_caps = ["fowner", "mknod"]`, add: []string{}, drop: []string{"all"}},
		{
			name: "few allowed and added", hcl: "cap_add = [\"fowner\", \"mknod\"]\ncap_drop = [\"all\"]",
			config: `allow_caps = ["mknod", "fowner"]`, add: []string{"fowner", "mknod"}, drop: []string{"all"},
		},
		{
			name: "few allowed, another added", hcl: `cap_add = ["net_admin", "mknod"]`, config: `allow_caps = ["fowner", "mknod"]`,
			refused: "net_admin",
		},
		{name: "none allowed", config: `allow_caps = []`, add: []string{}, drop: allDefaults},
		{name: "all allowed", hcl: `cap_add = ["mknod", "net_admin"]`, config: `allow_caps = ["all"]`, add: []string{"mknod", "net_admin"}, drop: []string{}},
		{name: "all added", hcl: `cap_add = ["all"]`, config: `allow_caps = ["all"]`, add: []string{"all"}, drop: []string{}},
		{name: "all added, not all allowed", hcl: `cap_add = ["all"]`, refused: "sys_admin"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			spec, _, err := newInput(t, c.hcl, c.config).Build()
			if c.refused != "" {
				must.ErrorContains(t, err, c.refused)
				return
			}
			must.NoError(t, err)
			must.Eq(t, c.add, []string(spec.Host.CapAdd))
			must.Eq(t, c.drop, []string(spec.Host.CapDrop))
		})
	}
}

// A mode that leaves the container needs a client that runs privileged tasks, or that
// lists it.
func TestContainerNamespaces(t *testing.T) {
	t.Parallel()
	const privileged = "allow_privileged = true"
	for _, key := range []string{"ipc", "pid", "uts", "userns", "cgroupns"} {
		option := key + "_mode"
		if key == "cgroupns" {
			option = key
		}
		allowed := func(globs string) string { return "allowed_modes { " + key + " = [" + globs + "] }" }
		for _, c := range []struct {
			mode, config string
			refused      bool
		}{
			{mode: ""},
			{mode: "host", refused: true},
			{mode: "host", config: privileged},
			{mode: "host", config: allowed(`"host"`)},
			{mode: "host", config: allowed(`"*"`)},
			{mode: "host", config: allowed(`"container:*"`), refused: true},
			{mode: "container:x", refused: true},
			{mode: "container:x", config: privileged},
			{mode: "container:x", config: allowed(`"container:*"`)},
			{mode: "container:x", config: allowed(`"container:y*", "container:x"`)},
			{mode: "container:x", config: allowed(`"container:y*"`), refused: true},
			{mode: "HOST", refused: true},
			{mode: " host", refused: true},
		} {
			spec, _, err := newInput(t, option+` = "`+c.mode+`"`, c.config).Build()
			if c.refused {
				must.ErrorContains(t, err, "config."+option, must.Sprint(c))
				must.ErrorContains(t, err, "allowed_modes."+key, must.Sprint(c))
				continue
			}
			must.NoError(t, err, must.Sprint(c))
			must.Eq(t, c.mode, map[string]string{
				"ipc": string(spec.Host.IpcMode), "pid": string(spec.Host.PidMode),
				"uts": string(spec.Host.UTSMode), "userns": string(spec.Host.UsernsMode),
				"cgroupns": string(spec.Host.CgroupnsMode),
			}[key])
		}
	}
	other, _, err := newInput(t, `pid_mode = "host"`, `allowed_modes { ipc = ["host"] }`).Build()
	must.ErrorContains(t, err, "config.pid_mode", must.Sprint(other))
	must.Eq(t, "shareable", string(build(t, newInput(t, `ipc_mode = "shareable"`, ``)).Host.IpcMode))
}

func TestContainerSecurityOptions(t *testing.T) {
	t.Parallel()
	const privileged = "allow_privileged = true"
	for _, c := range []struct {
		option, config string
		want           string // "": refused
	}{
		{"no-new-privileges", ``, "no-new-privileges"},
		{"no-new-privileges=true", ``, "no-new-privileges"},
		{"no-new-privileges:1", ``, "no-new-privileges"},
		{"no-new-privileges=false", ``, ""},
		{"no-new-privileges:false", privileged, "no-new-privileges=false"},
		{"no-new-privileges=perhaps", ``, ""},
		{"seccomp=unconfined", ``, "seccomp=unconfined"},
		{"seccomp:unconfined", ``, "seccomp=unconfined"},
		{"seccomp=builtin", ``, "seccomp=builtin"},
		{"apparmor=unconfined", ``, "apparmor=unconfined"},
		{"apparmor:my-profile", ``, "apparmor=my-profile"},
		{"label:disable", ``, "label=disable"},
		{"label=type:svirt_t", ``, "label=type:svirt_t"},
		{"disable", ``, "label=disable"},
		{"writable-cgroups", ``, ""},
		{"writable-cgroups=true", ``, ""},
		{"writable-cgroups:true", ``, ""},
		{"writable-cgroups=false", ``, ""},
		{"writable-cgroups", privileged, "writable-cgroups"},
		{"writable-cgroups:true", privileged, "writable-cgroups=true"},
		{"Writable-Cgroups=true", ``, ""},
		{" writable-cgroups", ``, ""},
		{"writable-cgroups ", ``, ""},
		{"writable-cgroups =true", ``, ""},
		{"label:writable-cgroups=true", ``, ""},
		{"systempaths=unconfined", ``, ""},
		{"systempaths:unconfined", ``, ""},
		{"seccomp", ``, ""},
		{"seccomp=", ``, ""},
		{"SECCOMP=unconfined", ``, ""},
		{"apparmor=", ``, ""},
		{"label", ``, ""},
		{"=", ``, ""},
		{"", ``, ""},
		{"credentialspec=file://x", ``, ""},
		{"invented-tomorrow", ``, ""},
		{"invented-tomorrow=true", privileged, "invented-tomorrow=true"},
		{"seccomp=local/notify.json", ``, ""},
		{"seccomp=local/notify.json", privileged, `seccomp={"ListenerPath":"/run/x.sock"}`},
		{"seccomp=local/good.json", ``, `seccomp={"a":1}`},
		{"seccomp:local/good.json", ``, `seccomp={"a":1}`},
		{"seccomp=local/bad.json", ``, ""},
		{"seccomp=local/none.json", ``, ""},
		{"seccomp=local/link.json", ``, ""},
		{"seccomp=local/link.json", `volumes { enabled = true }`, ""},
		{"seccomp=local", ``, ""},
		{"seccomp=HOST", ``, ""},
		{"seccomp:HOST", ``, ""},
		{"seccomp=HOST", `volumes { enabled = true }`, `seccomp={"h":1}`},
	} {
		t.Run(c.option+" "+c.config, func(t *testing.T) {
			t.Parallel()
			host := filepath.Join(t.TempDir(), "host.json")
			must.NoError(t, os.WriteFile(host, []byte(`{"h": 1}`), 0o600))
			option := c.option
			if prefix, isHost := strings.CutSuffix(c.option, "HOST"); isHost {
				option = prefix + host
			}
			in := newInput(t, `security_opt = ["`+option+`"]`, c.config)
			local := in.Task.TaskDir().LocalDir
			must.NoError(t, os.WriteFile(filepath.Join(local, "good.json"), []byte("{ \"a\":\n 1 }"), 0o600))
			must.NoError(t, os.WriteFile(filepath.Join(local, "bad.json"), []byte("root:x:0:0"), 0o600))
			must.NoError(t, os.WriteFile(filepath.Join(local, "notify.json"), []byte(`{ "ListenerPath": "/run/x.sock" }`), 0o600))
			must.NoError(t, os.Symlink(host, filepath.Join(local, "link.json")))
			spec, _, err := in.Build()
			if c.want == "" {
				must.ErrorContains(t, err, "config.security_opt \""+option+"\"")
				must.StrNotContains(t, err.Error(), "root:x", must.Sprint("the error quotes nothing of the file"))
				return
			}
			must.NoError(t, err)
			must.Eq(t, []string{c.want}, spec.Host.SecurityOpt)
		})
	}
}

// The daemon does not know systempaths: it is the client of Docker that translates it.
func TestContainerSystemPaths(t *testing.T) {
	t.Parallel()
	const option = `security_opt = ["systempaths=unconfined", "no-new-privileges"]`
	spec := build(t, newInput(t, option, `allow_privileged = true`))
	must.Eq(t, []string{"no-new-privileges"}, spec.Host.SecurityOpt)
	must.NotNil(t, spec.Host.MaskedPaths)
	must.NotNil(t, spec.Host.ReadonlyPaths)
	must.SliceEmpty(t, spec.Host.MaskedPaths)
	must.SliceEmpty(t, spec.Host.ReadonlyPaths)

	_, _, err := newInput(t, option, ``).Build()
	must.ErrorContains(t, err, "allow_privileged")
	_, _, err = newInput(t, `security_opt = ["systempaths=confined"]`, `allow_privileged = true`).Build()
	must.ErrorContains(t, err, `config.security_opt "systempaths=confined"`)
}

// To join the network of another allocation's container leaves the own one as much as
// any other mode does. The group's network and the host's are as with Nomad's driver.
func TestContainerNetworkOfAnother(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode, config string
		refused      bool
	}{
		{mode: "host"},
		{mode: "backend"},
		{mode: "container:app_" + allocID},
		{mode: "container:gpu-docker_sandbox_" + allocID},
		{mode: "container:app-" + allocID},
		{mode: "container:" + allocID, refused: true},
		{mode: "container:other_00000000-0000-4000-8000-000000000000", refused: true},
		{mode: "container:0123456789ab", refused: true},
		{mode: "container:", refused: true},
		{mode: "container:0123456789ab", config: `allow_privileged = true`},
		{mode: "container:vpn", config: `allowed_modes { network = ["container:vpn"] }`},
		{mode: "container:vpn2", config: `allowed_modes { network = ["container:vpn"] }`, refused: true},
	} {
		spec, _, err := newInput(t, `network_mode = "`+c.mode+`"`, c.config).Build()
		if c.refused {
			must.ErrorContains(t, err, `config.network_mode = "`+c.mode+`"`, must.Sprint(c))
			must.ErrorContains(t, err, "allowed_modes.network", must.Sprint(c))
			continue
		}
		must.NoError(t, err, must.Sprint(c))
		must.Eq(t, c.mode, string(spec.Host.NetworkMode))
	}
}

// The kernel ends others first when memory runs out, if a task is spared.
func TestContainerOOMScore(t *testing.T) {
	t.Parallel()
	_, _, err := newInput(t, `oom_score_adj = -1`, ``).Build()
	must.ErrorContains(t, err, "config.oom_score_adj = -1")
	must.ErrorContains(t, err, "allow_privileged")
	must.Eq(t, -1, build(t, newInput(t, `oom_score_adj = -1`, `allow_privileged = true`)).Host.OomScoreAdj)
	must.Eq(t, 1000, build(t, newInput(t, `oom_score_adj = 1000`, ``)).Host.OomScoreAdj)
	must.Eq(t, -5, build(t, newInput(t, ``, `oom_score_adj = -5`)).Host.OomScoreAdj)
}
