// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package attack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// ownDirs checks that the directories by which the client and the driver find their
// files still have their names.
func ownDirs(s *scene, in *intruder) error {
	var moved []error
	for name, before := range in.dirs {
		now, err := os.Lstat(filepath.Join(in.alloc.dir, name))
		if err != nil || !os.SameFile(before, now) {
			moved = append(moved, fmt.Errorf("the allocation's %s is not the directory that the client made", name))
		}
	}
	return errors.Join(moved...)
}

// upset tries to replace everything that is mounted at /a.
const upset = `for d in alloc alloc/logs app app/local other local secrets logs; do
	[ -d /a/$d ] && mv /a/$d /a/$d.moved && ln -s {etc} /a/$d; done; ls -la /a`

// rowsOfMounts attack the directories above a task's own.
func rowsOfMounts() (all []attack) {
	for _, c := range []struct{ name, tries, first, config string }{
		{"ancestor", `volumes = ["..:/a"]`, ``, `volumes = ["..:/a"]`},
		{"ancestor-shared", `volumes = ["..:/a:rw,rshared"]`, ``, `volumes = ["..:/a:rw,rshared"]`},
		{"ancestor-by-mount", `a mount block with source ".."`, ``, "mount {\n type = \"bind\"\n source = \"..\"\n target = \"/a\"\n}"},
		{"ancestor-spelled", `volumes = ["../alloc/..:/a"]`, ``, `volumes = ["../alloc/..:/a"]`},
		{"ancestor-absolute", `the allocation's directory by its absolute path`, ``, `volumes = ["{alloc}:/a"]`},
		{"ancestor-by-link", `local/up, a link to ../.. that an earlier start made`, `ln -s ../.. /local/up`, `volumes = ["local/up:/a"]`},
		{"ancestor-of-alloc-by-mount-of-mount", `.. inside the mount of another`, ``, `volumes = ["../alloc:/b", "..:/a/"]`},
		{"own-directory", `volumes = [".:/a"]`, ``, `volumes = [".:/a"]`},
		{"own-directory-spelled", `volumes = ["local/..:/a"]`, ``, `volumes = ["local/..:/a"]`},
		{"own-directory-by-name", `volumes = ["../app:/a"]`, ``, `volumes = ["../app:/a"]`},
		{"own-directory-by-link", `local/me, a link to .. that an earlier start made`, `ln -s .. /local/me`, `volumes = ["local/me:/a"]`},
		{"own-directory-by-mount", `a mount block with source "."`, ``, "mount {\n type = \"bind\"\n source = \".\"\n target = \"/a\"\n}"},
		{"sibling-directory", `volumes = ["../other:/a"]`, ``, `volumes = ["../other:/a"]`},
		{"shared-directory", `volumes = ["../alloc:/a"]`, ``, `volumes = ["../alloc:/a"]`},
		{"shared-directory-spelled", `volumes = ["../alloc/logs/..:/a"]`, ``, `volumes = ["../alloc/logs/..:/a"]`},
		{"logs-directory", `volumes = ["../alloc/logs:/a"]`, ``, `volumes = ["../alloc/logs:/a"]`},
	} {
		all = append(all, attack{
			name: c.name, tries: "to move what lies above its files, by " + c.tries, looks: "the allocation's directories on the host",
			job: job{first: c.first, config: c.config, script: upset}, look: both(ownDirs, never("rshared")),
		})
	}
	return append(all, rowsOfSources()...)
}

// rowsOfSources attack files of the host outside of the allocation.
func rowsOfSources() (all []attack) {
	const put = `cat /o /o/shadow /o/cron.d/daily; echo ` + written + ` >/o/shadow; echo ` + written + ` >/o/cron.d/new; echo ` + written + ` >/o/new`
	const bind = "mount {\n type = \"bind\"\n source = \"%s\"\n target = \"/o\"\n}"
	for _, c := range []struct{ name, tries, first, config string }{
		{"etc", `/etc in volumes`, ``, `volumes = ["{etc}:/o"]`},
		{"etc-by-mount", `/etc in a mount block`, ``, fmt.Sprintf(bind, "{etc}")},
		{"etc-by-climb", `/etc by ../../..`, ``, `volumes = ["../../../etc:/o"]`},
		{"etc-by-deep-climb", `/etc by local/../../../../etc`, ``, `volumes = ["local/../../../../etc:/o"]`},
		{"etc-by-climb-in-mount", `/etc by ../../.. in a mount block`, ``, fmt.Sprintf(bind, "../../../etc")},
		{"link-out", `a link to /etc that an earlier start made`, `ln -s {etc} /local/o`, `volumes = ["local/o:/o"]`},
		{"link-out-by-mount", `the same in a mount block`, `ln -s {etc} /local/o`, fmt.Sprintf(bind, "local/o")},
		{"link-out-in-two-steps", `a link to a link to /etc`, `ln -s {etc} /alloc/data/o; ln -s ../../alloc/data/o /local/o`, `volumes = ["local/o:/o"]`},
		{"link-out-relative", `a relative link to /etc`, `ln -s ../../../../etc /local/o`, `volumes = ["local/o:/o"]`},
		{"link-dangling", `a link to a file of /etc that does not exist yet`, `ln -s {etc}/cron.d/new /local/o`, `volumes = ["local/o:/o"]`},
		{"link-below", `a directory below a link to /etc`, `ln -s {etc} /local/o`, `volumes = ["local/o/cron.d:/o"]`},
		{"host-proc", `the host's files by /proc/1/root`, ``, `volumes = ["/proc/1/root{etc}:/o"]`},
		{"volume-of-local-driver", `a volume of the driver "local" over /etc`, ``, "mount {\n type = \"volume\"\n target = \"/o\"\n volume_options {\n  driver_config {\n" +
			"   name = \"local\"\n   options {\n    type = \"none\"\n    o = \"bind\"\n    device = \"{etc}\"\n   }\n  }\n }\n}"},
		{"volume-by-driver", `volume_driver = "local" with a path`, ``, "volumes = [\"{etc}:/o\"]\nvolume_driver = \"local\""},
		{"volume-named", `a named volume that others may have`, ``, "mount {\n type = \"volume\"\n source = \"shared-by-all\"\n target = \"/o\"\n}"},
		{"mount-untyped", `a mount block without type over /etc`, ``, "mount {\n source = \"{etc}\"\n target = \"/o\"\n}"},
		{"mount-of-npipe", `a mount block of an odd type`, ``, "mount {\n type = \"npipe\"\n source = \"{etc}\"\n target = \"/o\"\n}"},
	} {
		all = append(all, attack{
			name: c.name, tries: "to read and write " + c.tries, looks: "mounts of the container",
			job: job{first: c.first, config: c.config, script: put}, look: both(notMounted("{etc}", "/o"), noVolume),
		})
	}
	return append(all,
		attack{
			name: "docker-socket", tries: "to talk to Docker by its socket", looks: "mounts of the container",
			job: job{config: `volumes = ["{run}/docker.sock:/d.sock"]`, script: `ls -la /d.sock`}, look: notMounted("{run}/docker.sock", "/d.sock"),
		},
		attack{
			name: "docker-socket-by-link", tries: "to talk to Docker by a link to its socket", looks: "mounts of the container",
			job:  job{first: `ln -s {run}/docker.sock /local/d`, config: `volumes = ["local/d:/d.sock"]`, script: `ls -la /d.sock`},
			look: notMounted("{run}/docker.sock", "/d.sock"),
		},
		attack{
			name: "source-swapped", tries: "to have another task of the group put a link to /etc in a source's place while the start waits for units",
			looks: "mounts of the container",
			job:   job{config: `volumes = ["local/d:/o"]`, script: put, slice: true}, act: swapSource, look: notMounted("{etc}", "/o"),
		},
		attack{
			name: "volume-swapped", tries: "to have another task of the group put a link to /etc in a volume's place when Docker is asked for the container",
			looks: "mounts of the container",
			job:   job{config: `volumes = ["local/d/e:/o"]`, script: put}, act: swapAtCreate("{etc}"), look: notMounted("{etc}", "/o"),
		},
		attack{
			name: "mount-swapped", tries: "the same with a mount block", looks: "mounts of the container",
			job: job{config: fmt.Sprintf(bind, "local/d/e"), script: put}, act: swapAtCreate("{etc}"), look: notMounted("{etc}", "/o"),
		},
		attack{
			name: "file-swapped", tries: "the same with a file, and a link to another one", looks: "mounts of the container",
			job: job{config: `volumes = ["local/f:/o"]`, script: `cat /o`}, act: swapAtCreate("{etc}/shadow"), look: notMounted("{etc}/shadow", "/o"),
		},
		attack{
			name: "volume-swapped-for-names", tries: "the same with a link to the directory of the task, to put a link in the place of its logs",
			looks: "mounts of the container",
			job:   job{config: `volumes = ["local/d/e:/o"]`, script: put}, act: swapAtCreate("{alloc}"), look: notMounted("{alloc}", "/o"),
		},
	)
}

// noVolume checks that the container has no volume of Docker's.
func noVolume(_ *scene, in *intruder) error {
	if !in.runs() {
		return nil
	}
	for _, m := range in.container.Mounts {
		if m.Type == "volume" {
			return fmt.Errorf("the container has Docker's volume %s at %s", m.Name, m.Destination)
		}
	}
	return nil
}

// swapAtCreate replaces a source, or the directory above it, by a link after the driver's
// check and before Docker's.
func swapAtCreate(to string) func(*scene, *intruder) error {
	return func(s *scene, in *intruder) error {
		local, to := filepath.Join(in.alloc.dir, in.job.task, "local"), s.expand(in, to)
		name := filepath.Join(local, "f")
		err := os.WriteFile(name, []byte("own"), 0o600)
		if !strings.Contains(in.job.config, "local/f") {
			name, err = filepath.Join(local, "d", "e"), os.MkdirAll(filepath.Join(local, "d", "e"), 0o755)
		}
		if err != nil {
			return err
		}
		var swapped error
		s.stage.relay.onCreate(sync.OnceFunc(func() {
			swapped = errors.Join(os.Rename(name, name+".old"), os.Symlink(to, name))
		}))
		return errors.Join(in.start(in.job.config, in.job.script), swapped)
	}
}

// swapSource holds the task's units, as a task that stops slowly does, so that the start
// waits after it has checked its paths. The attacker's other task replaces them meanwhile.
func swapSource(s *scene, in *intruder) error {
	source := filepath.Join(in.alloc.dir, in.job.task, "local", "d")
	if err := os.Mkdir(source, 0o755); err != nil {
		return err
	}
	release, err := s.holdUnits(s.stage.gpus[0].slice(4, 5))
	if err != nil {
		return err
	}
	task, err := in.prepare(in.job.task, in.job.config, in.job.script)
	if err != nil {
		_ = release()
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- in.startTask(task) }()
	waits := eventually(func() bool { return s.plugin.messages(task.ID) != "" })
	swapped := errors.Join(os.Remove(source), os.Symlink(s.etc, source), release())
	err = errors.Join(swapped, <-failed)
	if !waits {
		err = errors.Join(err, errors.New("the start did not wait for its units"))
	}
	return err
}
