package driver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"
)

func TestHostsText(t *testing.T) {
	t.Parallel()
	web := &drivers.HostsConfig{Address: "10.0.0.1", Hostname: "web"}
	moved := &drivers.HostsConfig{Address: "10.0.0.2", Hostname: "web"}
	entry := ownHostMark + "\n10.0.0.1 web\n"
	for _, c := range []struct {
		name, before string
		own          *drivers.HostsConfig
		extra        []string
		want         string
	}{
		{"nothing to say", "", nil, nil, ""},
		{"an incomplete address", "", &drivers.HostsConfig{Hostname: "web"}, nil, ""},
		{"new", "", web, nil, commonHosts + entry},
		{"the same again", commonHosts + entry, web, nil, commonHosts + entry},
		{"the network was made anew", "1.1.1.1 a\n" + entry + "2.2.2.2 b\n", moved, nil, "1.1.1.1 a\n" + ownHostMark + "\n10.0.0.2 web\n2.2.2.2 b\n"},
		{"known from before the agent's restart", commonHosts + entry, nil, nil, commonHosts + entry},
		{"cut off after the mark", ownHostMark + "\n", web, nil, entry},
		{"changed by a task", "1.1.1.1 mine\n", web, nil, "1.1.1.1 mine\n" + entry},
		{"extra hosts", "", web, []string{"db:10.0.0.9", "six:2001:db8::1", "b:[2001:db8::2]"},
			commonHosts + entry + "10.0.0.9 db\n2001:db8::1 six\n2001:db8::2 b\n"},
		{"extra hosts of the next task", commonHosts + entry + "10.0.0.9 db\n", nil, []string{"db:10.0.0.9", "mq:10.0.0.8"},
			commonHosts + entry + "10.0.0.9 db\n10.0.0.8 mq\n"},
		{"extra hosts alone", "", nil, []string{"db:10.0.0.9"}, commonHosts + "10.0.0.9 db\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := hostsText(c.before, c.own, c.extra)
			must.NoError(t, err)
			must.Eq(t, c.want, got)
		})
	}
	for _, bad := range []string{"db", "db:", ":10.0.0.1", "db:10.0.0.256", "gw:host-gateway"} {
		_, err := hostsText("", web, []string{bad})
		must.ErrorContains(t, err, "config.extra_hosts")
	}
}

// Tasks that run have the file mounted: it is written to, and not replaced.
func TestHostsFileStays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, hostsFile)
	spec := &drivers.NetworkIsolationSpec{
		Mode: drivers.NetIsolationModeGroup, HostsConfig: &drivers.HostsConfig{Address: "10.0.0.1", Hostname: "web"},
	}
	files := &hostsFiles{}
	mount, err := files.mount(dir, spec, nil)
	must.NoError(t, err)
	must.Eq(t, &drivers.MountConfig{TaskPath: "/etc/hosts", HostPath: path, PropagationMode: "private"}, mount)
	first, err := os.Stat(path)
	must.NoError(t, err)

	spec.HostsConfig.Address = "10.0.0.2"
	_, err = files.mount(dir, spec, nil)
	must.NoError(t, err)
	second, err := os.Stat(path)
	must.NoError(t, err)
	must.True(t, os.SameFile(first, second))

	spec.HostsConfig = nil // as after a restart of Nomad's agent
	mount, err = files.mount(dir, spec, nil)
	must.NoError(t, err)
	must.NotNil(t, mount)
	text, err := os.ReadFile(path)
	must.NoError(t, err)
	must.StrContains(t, string(text), "10.0.0.2 web\n")

	mount, err = files.mount(t.TempDir(), spec, nil)
	must.NoError(t, err)
	must.Nil(t, mount)
}

// A task can plant links where the driver writes: they must not be followed.
func TestNetworkFilesFollowNoLinks(t *testing.T) {
	t.Parallel()
	victim := filepath.Join(t.TempDir(), "victim")
	must.NoError(t, os.WriteFile(victim, []byte("keep"), 0o600))
	allocDir := t.TempDir()
	task := &drivers.TaskConfig{Name: "app", AllocDir: allocDir, DNS: &drivers.DNSConfig{Servers: []string{"10.0.0.53"}}}
	must.NoError(t, os.Mkdir(task.TaskDir().Dir, 0o755))
	hosts, resolv := filepath.Join(allocDir, hostsFile), filepath.Join(task.TaskDir().Dir, "resolv.conf")
	must.NoError(t, os.Symlink(victim, hosts))
	must.NoError(t, os.Symlink(victim, resolv))

	mount, err := resolvConf(task)
	must.NoError(t, err)
	must.Eq(t, &drivers.MountConfig{TaskPath: "/etc/resolv.conf", HostPath: resolv, Readonly: true, PropagationMode: "private"}, mount)
	spec := &drivers.NetworkIsolationSpec{
		Mode: drivers.NetIsolationModeGroup, HostsConfig: &drivers.HostsConfig{Address: "10.0.0.1", Hostname: "web"},
	}
	_, err = (&hostsFiles{}).mount(allocDir, spec, nil)
	must.NoError(t, err)

	for path, want := range map[string]string{hosts: "10.0.0.1 web", resolv: "nameserver 10.0.0.53"} {
		info, err := os.Lstat(path)
		must.NoError(t, err)
		must.True(t, info.Mode().IsRegular())
		text, err := os.ReadFile(path)
		must.NoError(t, err)
		must.StrContains(t, string(text), want)
	}
	text, err := os.ReadFile(victim)
	must.NoError(t, err)
	must.Eq(t, "keep", string(text))
}
