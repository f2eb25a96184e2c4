// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/mount"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/driver/config"
)

// What a job's mounts let it write to. ALLOC is the allocation's directory, which lies below BASE; below it are the
// directories of the tasks app and other, and of one that Nomad has yet to make.
func TestContainerAccess(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		source   string
		host     bool // needs volumes.enabled
		writable bool
		covered  string // where the logs show, below the target
	}{
		{source: "local", writable: true},
		{source: "local/data", writable: true},
		{source: "secrets", writable: true},
		{source: "data", writable: true},
		{source: "../alloc", writable: true, covered: "/logs"},
		{source: "../alloc/", writable: true, covered: "/logs"},
		{source: "ALLOC/alloc", writable: true, covered: "/logs"},
		{source: "local/to-alloc", writable: true, covered: "/logs"},
		{source: "../alloc/data", writable: true},
		{source: "../other/local", writable: true},
		{source: "../other/secrets", writable: true},
		{source: "../other/local/deep", writable: true},

		{source: "."},
		{source: "./"},
		{source: "local/.."},
		{source: "secrets/../../app"},
		{source: "ALLOC/app"},
		{source: "local/to-app"},
		{source: "local/to-app/local/to-app"},
		{source: ".."},
		{source: "../"},
		{source: "../alloc/.."},
		{source: "local/../.."},
		{source: "ALLOC"},
		{source: "ALLOC/"},
		{source: "ALLOC/app/.."},
		{source: "local/to-root"},
		{source: "../other"},
		{source: "../other/local/.."},
		{source: "local/to-root/other"},
		{source: "../not-yet"},
		{source: "local/to-root/not-yet"},
		{source: "../hosts"},
		{source: "../alloc/logs"},
		{source: "../alloc/logs/app.stdout.0"},
		{source: "local/to-alloc/logs"},

		{source: "../..", host: true},
		{source: "BASE", host: true},
		{source: "LINK", host: true},
		{source: "/tmp", host: true},
		{source: "/", host: true},
		{source: "/etc", host: true, writable: true},
		{source: "BASE/beside", host: true, writable: true},
	} {
		onAndOff(t, strings.ReplaceAll(c.source, "/", "_"), func(t *testing.T, client string, enabled bool) {
			base := t.TempDir()
			alloc := filepath.Join(base, "allocs", allocID)
			link := filepath.Join(t.TempDir(), "link")
			must.NoError(t, os.Symlink(base, link))
			source := strings.NewReplacer("ALLOC", alloc, "BASE", base, "LINK", link).Replace(c.source)
			for _, form := range []string{"volume", "volume rw", "volume ro", "volume with a propagation", "mount", "mounts"} {
				in := newInput(t, ``, client)
				in.Task.AllocDir = alloc
				makeAlloc(t, alloc)
				mode := map[string]string{"volume rw": ":rw", "volume ro": ":ro", "volume with a propagation": ":z,rslave"}[form]
				bind := config.Mount{Type: "bind", Source: source, Target: "/x"}
				switch form {
				case "mount":
					in.Job.Mount = []config.Mount{bind}
				case "mounts":
					in.Job.MountsList = []config.Mount{bind}
				default:
					in.Job.Volumes = []string{source + ":/x" + mode}
				}
				spec, remarks, err := in.Build()
				switch {
				case c.host && !enabled:
					must.ErrorContains(t, err, "volumes are not enabled", must.Sprint(form))
					continue
				case !c.writable && form == "volume rw":
					must.Error(t, err)
					must.ErrorContains(t, err, "rw is refused")
					continue
				}
				must.NoError(t, err, must.Sprint(form))
				binds, writable := spec.Host.Binds[4:], false
				if strings.HasPrefix(form, "mount") {
					must.Len(t, 1, spec.Host.Mounts)
					writable = !spec.Host.Mounts[0].ReadOnly
				} else {
					last := binds[len(binds)-1]
					binds = binds[:len(binds)-1]
					writable = !slices.Contains(strings.Split(last[strings.LastIndex(last, ":/x")+2:], ":"), "ro") &&
						!strings.Contains(last, ":ro,")
				}
				must.Eq(t, c.writable && form != "volume ro", writable, must.Sprint(form))
				if writable && c.covered != "" {
					must.Eq(t, []string{alloc + "/alloc/logs:/x" + c.covered + ":ro"}, binds, must.Sprint(form))
				} else {
					must.SliceEmpty(t, binds, must.Sprint(form))
				}
				told := strings.Contains(strings.Join(remarks, "\n"), "mount local, secrets, ../alloc or another task's local instead")
				logs := strings.Contains(c.source, "logs")
				must.Eq(t, !c.writable && !logs && form != "volume ro", told, must.Sprint(form, remarks))
			}
		})
	}
}

func makeAlloc(t *testing.T, alloc string) {
	t.Helper()
	for _, dir := range []string{"alloc/logs", "alloc/data", "app/local", "app/secrets", "other/local", "other/secrets"} {
		must.NoError(t, os.MkdirAll(filepath.Join(alloc, dir), 0o755))
	}
	for name, target := range map[string]string{"to-alloc": "../../alloc", "to-app": "../../app", "to-root": "../.."} {
		if err := os.Symlink(target, filepath.Join(alloc, "app", "local", name)); !os.IsExist(err) {
			must.NoError(t, err)
		}
	}
}

// A bind that is writable at one place and not at another is writable nowhere it must not be.
func TestContainerAccessOfManyMounts(t *testing.T) {
	t.Parallel()
	in := newInput(t, `volumes = [".:/a", "..:/b", ".:/b/app/local", "../alloc:/b/alloc", "..:/b/alloc/data"]`, ``)
	makeAlloc(t, in.Task.AllocDir)
	alloc := in.Task.AllocDir
	must.Eq(t, []string{
		alloc + "/app:/a:ro", alloc + ":/b:ro", alloc + "/app:/b/app/local:ro",
		alloc + "/alloc/logs:/b/alloc/logs:ro", alloc + "/alloc:/b/alloc", alloc + ":/b/alloc/data:ro",
	}, build(t, in).Host.Binds[4:])
}

// The operator can have it as before.
func TestContainerAccessIfTheOperatorWants(t *testing.T) {
	t.Parallel()
	in := newInput(t, `volumes = [".:/a", "..:/b:rw"]`, `allow_writable_logs = true`)
	must.Eq(t, []string{in.Task.AllocDir + "/app:/a", in.Task.AllocDir + ":/b:rw"}, build(t, in).Host.Binds[3:])
}

// Mounts of a container reach the host only if the operator lets them.
func TestContainerSharedPropagation(t *testing.T) {
	t.Parallel()
	for client, allowed := range map[string]bool{
		``: false, `allow_privileged = true`: true, `volumes { enabled = true }`: true, `allow_writable_logs = true`: false,
	} {
		for _, propagation := range []string{"shared", "rshared"} {
			volume := newInput(t, `volumes = ["local:/x:`+propagation+`"]`, client)
			block := newInput(t, ``, client)
			block.Job.Mount = []config.Mount{{Type: "bind", Source: "local", Target: "/x", BindOptions: config.BindOptions{Propagation: propagation}}}
			for _, in := range []*Input{volume, block} {
				spec, _, err := in.Build()
				if !allowed {
					must.ErrorIs(t, err, errShared)
					continue
				}
				must.NoError(t, err)
				if len(spec.Host.Mounts) > 0 {
					must.Eq(t, mount.Propagation(propagation), spec.Host.Mounts[0].BindOptions.Propagation)
				}
			}
		}
	}
}

// A task has a directory of its own, and in it nothing but what Nomad made.
func TestContainerOwnDirectories(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"alloc", ".", "..", "alloc/x", "../x"} {
		in := newInput(t, ``, ``)
		in.Task.Name = name
		_, _, err := in.Build()
		must.ErrorContains(t, err, "is not its own", must.Sprint(name))
	}
	for _, dir := range []string{"alloc", "alloc/logs", "app", "app/local", "app/secrets"} {
		in := newInput(t, ``, ``)
		makeAlloc(t, in.Task.AllocDir)
		at := filepath.Join(in.Task.AllocDir, dir)
		must.NoError(t, os.Rename(at, at+"-gone"))
		must.NoError(t, os.Symlink(at+"-gone", at))
		_, _, err := in.Build()
		must.ErrorContains(t, err, "is a link", must.Sprint(dir))
	}
}
