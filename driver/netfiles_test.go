// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"
	"golang.org/x/sys/unix"

	"nomad-gpu-mem/driver/netfile"
)

// victim is a directory of the host as a task would like to have it changed.
type victim string

func newVictim(t *testing.T) victim {
	t.Helper()
	v := victim(t.TempDir())
	for _, name := range []string{netfile.HostsFile, "resolv.conf"} {
		must.NoError(t, os.WriteFile(filepath.Join(string(v), name), []byte("keep"), 0o600))
	}
	return v
}

func (v victim) untouched(t *testing.T) {
	t.Helper()
	must.Eq(t, []string{netfile.HostsFile, "resolv.conf"}, files(t, string(v)))
	for _, name := range []string{netfile.HostsFile, "resolv.conf"} {
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
				filepath.Join(allocDir, netfile.HostsFile):    "10.0.0.1 web",
				filepath.Join(allocDir, "app", "resolv.conf"): "nameserver 10.0.0.53",
			}
			for path := range paths {
				must.NoError(t, plant(v, path))
			}
			must.NoError(t, netfile.Replace(allocDir, "app/"+"resolv.conf", "nameserver 10.0.0.53\n"))
			h := netfile.Hosts{Group: true, Own: &drivers.HostsConfig{Address: "10.0.0.1", Hostname: "web"}}
			must.NoError(t, (&netfile.HostsFiles{}).Write(allocDir, h))
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
