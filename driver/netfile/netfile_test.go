// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package netfile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/docker/docker/libnetwork/resolvconf"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/driver/taskfile"
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
		{"the network was created again", "1.1.1.1 a\n" + entry + "2.2.2.2 b\n", moved, nil, "1.1.1.1 a\n" + ownHostMark + "\n10.0.0.2 web\n2.2.2.2 b\n"},
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
	for _, bad := range []string{"db", "db:", ":10.0.0.1", "db:10.0.0.256", "gw:host-gateway", "a b:10.0.0.1", "a\n10.0.0.2 b:10.0.0.1"} {
		_, err := hostsText("", web, []string{bad})
		must.ErrorContains(t, err, "config.extra_hosts")
	}
}

// Tasks that run have the file mounted: it is written to, and not replaced.
func TestHostsFileStays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, HostsFile)
	h := Hosts{Group: true, Own: &drivers.HostsConfig{Address: "10.0.0.1", Hostname: "web"}}
	files := &HostsFiles{}
	mount, err := files.Plan(dir, h)
	must.NoError(t, err)
	must.Eq(t, &drivers.MountConfig{TaskPath: "/etc/hosts", HostPath: path, PropagationMode: "private"}, mount)
	must.FileNotExists(t, path)
	must.NoError(t, files.Write(dir, h))
	first, err := os.Stat(path)
	must.NoError(t, err)

	h.Own.Address = "10.0.0.2"
	must.NoError(t, files.Write(dir, h))
	second, err := os.Stat(path)
	must.NoError(t, err)
	must.True(t, os.SameFile(first, second))

	h.Own = nil // as after a restart of Nomad's agent
	mount, err = files.Plan(dir, h)
	must.NoError(t, err)
	must.NotNil(t, mount)
	must.NoError(t, files.Write(dir, h))
	text, err := os.ReadFile(path)
	must.NoError(t, err)
	must.StrContains(t, string(text), "10.0.0.2 web\n")

	mount, err = files.Plan(t.TempDir(), h)
	must.NoError(t, err)
	must.Nil(t, mount)
}

// A hosts file that a task has filled without end is not read.
func TestHostsFileIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.NoError(t, os.WriteFile(filepath.Join(dir, HostsFile), nil, 0o644))
	must.NoError(t, os.Truncate(filepath.Join(dir, HostsFile), 1<<40))
	_, err := (&HostsFiles{}).Plan(dir, Hosts{Group: true, Extra: []string{"a:10.0.0.1"}})
	must.ErrorIs(t, err, taskfile.ErrSize)
}

func TestResolvConf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		dns  drivers.DNSConfig
		want string
	}{
		{"all", drivers.DNSConfig{Servers: []string{"10.0.0.53", "2001:db8::1"}, Searches: []string{"a.org", "b.org"}, Options: []string{"ndots:2", "edns0"}},
			"nameserver 10.0.0.53\nnameserver 2001:db8::1\nsearch a.org b.org\noptions ndots:2 edns0\n"},
		{"no search", drivers.DNSConfig{Servers: []string{"10.0.0.53"}, Searches: []string{"."}, Options: []string{"edns0", ""}},
			"nameserver 10.0.0.53\noptions edns0\n"},
		{"a zone", drivers.DNSConfig{Servers: []string{"fe80::1%eth0"}, Searches: []string{"."}, Options: []string{"edns0"}},
			"nameserver fe80::1%eth0\noptions edns0\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			text, err := ResolvConf(&c.dns)
			must.NoError(t, err)
			must.Eq(t, c.want, text)
		})
	}
	host, err := ResolvConf(&drivers.DNSConfig{})
	must.NoError(t, err)
	system, err := resolvconf.Get()
	must.NoError(t, err)
	must.Eq(t, string(system.Content), host)
}
