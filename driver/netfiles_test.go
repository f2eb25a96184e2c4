// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/docker/docker/libnetwork/resolvconf"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"
	"golang.org/x/sys/unix"

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
	path := filepath.Join(dir, hostsFile)
	h := hosts{group: true, own: &drivers.HostsConfig{Address: "10.0.0.1", Hostname: "web"}}
	files := &hostsFiles{}
	mount, err := files.plan(dir, h)
	must.NoError(t, err)
	must.Eq(t, &drivers.MountConfig{TaskPath: "/etc/hosts", HostPath: path, PropagationMode: "private"}, mount)
	must.FileNotExists(t, path)
	must.NoError(t, files.write(dir, h))
	first, err := os.Stat(path)
	must.NoError(t, err)

	h.own.Address = "10.0.0.2"
	must.NoError(t, files.write(dir, h))
	second, err := os.Stat(path)
	must.NoError(t, err)
	must.True(t, os.SameFile(first, second))

	h.own = nil // as after a restart of Nomad's agent
	mount, err = files.plan(dir, h)
	must.NoError(t, err)
	must.NotNil(t, mount)
	must.NoError(t, files.write(dir, h))
	text, err := os.ReadFile(path)
	must.NoError(t, err)
	must.StrContains(t, string(text), "10.0.0.2 web\n")

	mount, err = files.plan(t.TempDir(), h)
	must.NoError(t, err)
	must.Nil(t, mount)
}

// A hosts file that a task has filled without end is not read.
func TestHostsFileIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.NoError(t, os.WriteFile(filepath.Join(dir, hostsFile), nil, 0o644))
	must.NoError(t, os.Truncate(filepath.Join(dir, hostsFile), 1<<40))
	_, err := (&hostsFiles{}).plan(dir, hosts{group: true, extra: []string{"a:10.0.0.1"}})
	must.ErrorIs(t, err, taskfile.ErrSize)
}

// victim is a directory of the host as a task would like to have it changed.
type victim string

func newVictim(t *testing.T) victim {
	t.Helper()
	v := victim(t.TempDir())
	for _, name := range []string{hostsFile, "resolv.conf"} {
		must.NoError(t, os.WriteFile(filepath.Join(string(v), name), []byte("keep"), 0o600))
	}
	return v
}

func (v victim) untouched(t *testing.T) {
	t.Helper()
	must.Eq(t, []string{hostsFile, "resolv.conf"}, files(t, string(v)))
	for _, name := range []string{hostsFile, "resolv.conf"} {
		text, err := os.ReadFile(filepath.Join(string(v), name))
		must.NoError(t, err)
		must.Eq(t, "keep", string(text))
	}
}

// A task can plant links and more where the driver writes: they are not followed.
func TestNetworkFilesFollowNoLinks(t *testing.T) {
	t.Parallel()
	plant := map[string]func(v victim, path string) error{
		"link": func(v victim, path string) error {
			return os.Symlink(filepath.Join(string(v), filepath.Base(path)), path)
		},
		"hard link": func(v victim, path string) error {
			return os.Link(filepath.Join(string(v), filepath.Base(path)), path)
		},
		"FIFO": func(_ victim, path string) error { return unix.Mkfifo(path, 0o666) },
	}
	for name, plant := range plant {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, allocDir := newVictim(t), t.TempDir()
			must.NoError(t, os.Mkdir(filepath.Join(allocDir, "app"), 0o755))
			paths := map[string]string{
				filepath.Join(allocDir, hostsFile):      "10.0.0.1 web",
				filepath.Join(allocDir, "app", "resolv.conf"): "nameserver 10.0.0.53",
			}
			for path := range paths {
				must.NoError(t, plant(v, path))
			}
			must.NoError(t, replaceFile(allocDir, "app/"+"resolv.conf", "nameserver 10.0.0.53\n"))
			h := hosts{group: true, own: &drivers.HostsConfig{Address: "10.0.0.1", Hostname: "web"}}
			must.NoError(t, (&hostsFiles{}).write(allocDir, h))
			for path, want := range paths {
				info, err := os.Lstat(path)
				must.NoError(t, err)
				must.True(t, info.Mode().IsRegular())
				must.Eq(t, 0o644, info.Mode().Perm())
				text, err := os.ReadFile(path)
				must.NoError(t, err)
				must.StrContains(t, string(text), want)
			}
			v.untouched(t)
		})
	}
}

// groupTask is a task in a group's network with a dns block and an entry for its hosts file.
func groupTask(w *world, hcl string) *drivers.TaskConfig {
	task := w.task("extra_hosts = [\"db:10.0.0.9\"]\n" + hcl)
	task.NetworkIsolation = &drivers.NetworkIsolationSpec{Mode: drivers.NetIsolationModeGroup}
	task.DNS = &drivers.DNSConfig{Servers: []string{"6.6.6.6"}}
	return task
}

// A task's directory that is a link leads the driver nowhere, with a start and with a recovery.
func TestTaskDirectoryIsALink(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := groupTask(w, ``)
	v := newVictim(t)
	dir := task.TaskDir().Dir
	must.NoError(t, os.Rename(dir, dir+"-gone"))
	must.NoError(t, os.Symlink(string(v), dir))
	_, _, err := d.StartTask(task)
	must.ErrorContains(t, err, "is a link")
	v.untouched(t)
	w.nothingLeft()

	must.NoError(t, os.Remove(dir))
	must.NoError(t, os.Rename(dir+"-gone", dir))
	handle, _, err := d.StartTask(task)
	must.NoError(t, err)
	d.kill()
	must.NoError(t, os.Rename(dir, dir+"-gone"))
	must.NoError(t, os.Symlink(string(v), dir))
	d = w.boot()
	must.NoError(t, d.RecoverTask(handle))
	must.NoError(t, d.StopTask(task.ID, 0, ""))
	must.NoError(t, d.DestroyTask(task.ID, true))
	v.untouched(t)
}

// A start that is refused has written nothing.
func TestRefusedStartsWriteNothing(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]struct {
		hcl string
		dns drivers.DNSConfig
	}{
		"a mount":         {`volumes = ["/etc:/x"]`, drivers.DNSConfig{Servers: []string{"6.6.6.6"}}},
		"a privilege":     {`privileged = true`, drivers.DNSConfig{Servers: []string{"6.6.6.6"}}},
		"a profile":       {`security_opt = ["seccomp=local/none.json"]`, drivers.DNSConfig{Servers: []string{"6.6.6.6"}}},
		"an extra host":   {`extra_hosts = ["a b:10.0.0.1"]`, drivers.DNSConfig{Servers: []string{"6.6.6.6"}}},
		"a server":        {``, drivers.DNSConfig{Servers: []string{"6.6.6.6\nsearch evil"}}},
		"a name server":   {``, drivers.DNSConfig{Servers: []string{"ns.example.org"}}},
		"a server's zone": {``, drivers.DNSConfig{Servers: []string{"fe80::1%a\nsearch evil"}}},
		"a domain":        {``, drivers.DNSConfig{Searches: []string{"a b"}}},
		"an option":       {``, drivers.DNSConfig{Options: []string{"ndots:1\nanything"}}},
		"control":         {``, drivers.DNSConfig{Options: []string{"ndots:1\x00"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d := w.boot()
			task := w.task(change.hcl)
			task.NetworkIsolation = &drivers.NetworkIsolationSpec{
				Mode: drivers.NetIsolationModeGroup, HostsConfig: &drivers.HostsConfig{Address: "10.0.0.1", Hostname: "web"},
			}
			task.DNS = &change.dns
			_, _, err := d.StartTask(task)
			must.Error(t, err)
			must.Eq(t, []string{"app"}, files(t, task.AllocDir))
			must.Eq(t, []string{"local"}, files(t, task.TaskDir().Dir))
		})
	}
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
			text, err := resolvConf(&c.dns)
			must.NoError(t, err)
			must.Eq(t, c.want, text)
		})
	}
	host, err := resolvConf(&drivers.DNSConfig{})
	must.NoError(t, err)
	system, err := resolvconf.Get()
	must.NoError(t, err)
	must.Eq(t, string(system.Content), host)
}
