// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"testing"

	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/driver/configtest"
)

// What has no effect is accepted, since Nomad's own driver accepts it, and reported.
func TestNoEffect(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, hcl, config string
		change            func(*Input)
		want              string
	}{
		{name: "nothing to say", hcl: `auth {}`},
		{name: "email", hcl: `auth { email = "e" }`, want: "config.auth.email"},
		{name: "user alone", hcl: `auth { username = "u" }`, want: `config.auth for user "u" has only one`},
		{name: "negative size", hcl: `memory_hard_limit = -1`, want: "config.memory_hard_limit = -1"},
		{name: "period without a limit", hcl: `cpu_cfs_period = 20000`, want: "config.cpu_cfs_period = 20000"},
		{name: "period with a limit", hcl: "cpu_cfs_period = 20000\ncpu_hard_limit = true"},
		{name: "CPUs", hcl: `cpuset_cpus = "0-1"`},
		{
			name: "CPUs besides cores", hcl: `cpuset_cpus = "0-1"`,
			change: func(in *Input) { in.Task.Resources.LinuxResources.CpusetCpus = "2-3" },
			want:   `config.cpuset_cpus = "0-1" has no effect: the task's reserved cores are 2-3`,
		},
		{name: "no limit of processes", hcl: `pids_limit = -1`, config: `pids_limit = 20`, want: "config.pids_limit = -1"},
		{name: "no address", hcl: `dns_servers = ["nowhere", "1.1.1.1"]`, want: `config.dns_servers: "nowhere"`},
		{
			name: "DNS of the group", hcl: `dns_servers = ["1.1.1.1"]`,
			change: func(in *Input) {
				in.Files = []*drivers.MountConfig{{TaskPath: "/etc/resolv.conf", HostPath: "/x"}}
			},
			want: "config.dns_servers, dns_search_domains and dns_options have no effect",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in := newInput(t, c.hcl, c.config)
			if c.change != nil {
				c.change(in)
			}
			must.NoError(t, in.Job.Validate())
			_, remarks, err := in.Build()
			must.NoError(t, err)
			if c.want == "" {
				must.SliceEmpty(t, remarks)
				return
			}
			must.SliceLen(t, 1, remarks)
			must.StrContains(t, remarks[0], c.want)
		})
	}
}

func TestConfigNoEffect(t *testing.T) {
	t.Parallel()
	for hcl, want := range map[string]string{
		`tls { ca = "/ca.pem" }`:                        "tls has no effect without endpoint",
		`windows_allow_insecure_container_admin = true`: "windows_allow_insecure_container_admin has no effect",
		`compat_labels = true`:                          "compat_labels needs Nomad's own Docker driver to be off",
	} {
		s, err := configtest.Plugin(t, hcl).Settings()
		must.NoError(t, err)
		must.SliceLen(t, 1, s.Warnings(false))
		must.StrContains(t, s.Warnings(false)[0], want)
	}
	s, err := configtest.Plugin(t, `compat_labels = true`).Settings()
	must.NoError(t, err)
	must.SliceEmpty(t, s.Warnings(true), must.Sprint("Nomad's own driver is not there"))
}
