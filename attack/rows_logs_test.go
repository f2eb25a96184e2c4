// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package attack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// rowsOfLogs attack what the driver and Nomad write while a task prints.
func rowsOfLogs() (all []attack) {
	for _, c := range []struct{ name, tries, config string }{
		{"own directory", "in its own directory", `volumes = [".:/t"]`},
		{"own directory by name", "in its own directory, mounted by name", `volumes = ["../app:/t"]`},
		{"own directory by mount", "in its own directory, by a mount block", "mount {\n type = \"bind\"\n source = \".\"\n target = \"/t\"\n}"},
		{"ancestor", "by way of the allocation's directory", `volumes = ["..:/a"]`},
	} {
		name := strings.ReplaceAll(c.name, " ", "-")
		in := "t=/t; [ -d /a ] && t=/a/app; f=$t/.gpu-docker-logs.json; "
		const prints = `echo a line >&3`
		all = append(all,
			attack{
				name: "checkpoint-disk-" + name, tries: "to have the driver note its place in the log on a disk of the host, by a node " + c.tries,
				needs: needsDisk, job: job{firstConfig: c.config, first: in + `mknod $t/n {disk-node}; mv -f $t/n $f`, script: prints, logs: true}, look: logged("a line"),
			},
			attack{
				name: "checkpoint-link-" + name, tries: "the same in a file of /etc, by a link " + c.tries,
				job: job{firstConfig: c.config, first: in + `ln -s {etc}/cron.d/new $t/n; mv -f $t/n $f`, script: prints, logs: true}, look: logged("a line"), slow: true,
			})
	}
	return append(all,
		attack{
			name: "checkpoint-pipe", tries: "to hold the driver up for ever by a pipe where it notes its place in the log", looks: "the task's log",
			job:  job{firstConfig: `volumes = [".:/t"]`, first: `mkfifo /t/n; mv -f /t/n /t/.gpu-docker-logs.json`, script: `echo a line >&3`, logs: true},
			look: logged("a line"),
		},
		attack{
			name: "log-collector", tries: "to have Nomad's log collector write 20 MB into /etc/cron.d, by a link in a log directory that it moved",
			job: job{config: `volumes = ["..:/a"]`, logs: true, script: `mv /a/alloc /a/x; mkdir -p /a/alloc/logs
				for i in 0 1 2 3; do ln -s {etc}/cron.d/new$i /a/alloc/logs/app.stdout.$i; done
				yes '* * * * * root ` + written + `' | head -c 20000000 >&3`},
			look: both(ownDirs, collected),
		},
		attack{
			name: "log-collector-by-mount", tries: "the same, by a mount block",
			job: job{config: "mount {\n type = \"bind\"\n source = \"..\"\n target = \"/a\"\n}", logs: true, script: `mv /a/alloc /a/x; mkdir -p /a/alloc/logs
				for i in 0 1 2 3; do ln -s {etc}/cron.d/new$i /a/alloc/logs/app.stdout.$i; done
				yes '* * * * * root ` + written + `' | head -c 4000000 >&3`},
			look: both(ownDirs, collected), slow: true,
		},
		attack{
			name: "log-collector-direct", tries: "the same, by links in alloc/logs as every task has it", looks: "links in alloc/logs",
			job: job{logs: true, config: `volumes = ["../alloc:/b"]`, script: `for d in /alloc/logs /b/logs; do for i in 0 1 2 3; do ln -sf {etc}/cron.d/new$i $d/app.stdout.$i; done
				mv $d $d.x; umount $d; rm -rf $d; done; mount -o remount,rw /alloc/logs
				yes '* * * * * root ` + written + `' | head -c 4000000 >&3`},
			look: both(ownDirs, collected, noLinksInLogs),
		},
		attack{
			name: "log-cover-misled", tries: "the same, with another mount between that of ../alloc and the read-only one of its logs, which leads the latter astray",
			looks: "links in alloc/logs", job: job{config: misleading(), logs: true}, act: misleadCover, look: noLinksInLogs,
		},
		attack{
			name: "log-cover-misled-by-image", tries: "the same, with nothing but links in its image", looks: "links in alloc/logs",
			job: job{logs: true}, act: misleadByImage, look: noLinksInLogs,
		},
		attack{
			name: "log-cover-left", tries: "the same, from a user namespace in which the logs are not a mount point, without a seccomp profile",
			looks: "links in alloc/logs",
			job: job{config: `security_opt = ["seccomp=unconfined", "apparmor=unconfined"]`, logs: true, script: leaveCover + `
				yes '* * * * * root ` + written + `' | head -c 4000000 >&3`},
			look: both(ownDirs, collected, noLinksInLogs),
		},
		attack{
			name: "log-cover-handed-over", tries: "the same, by a task of another allocation that it hands its /alloc to, over a socket of the host's network",
			looks: "links in alloc/logs", job: job{config: `network_mode = "host"`, logs: true}, act: handOver, look: both(ownDirs, collected, noLinksInLogs),
		},
		attack{
			name: "log-pipe-link", tries: "to have the driver write output into /etc, by a link in place of Nomad's pipe",
			job: job{firstConfig: `volumes = ["..:/a"]`, logs: true, script: `echo ` + written + ` >&3`,
				first: `mv /a/alloc /a/x; mkdir -p /a/alloc/logs; for s in out err; do ln -s {etc}/cron.d/daily /a/alloc/logs/.app.std$s.fifo; done`},
		},
	)
}

// leaveCover keeps /alloc open in a mount namespace that has none of the container's mounts: nothing there has the logs for a
// mount point, so that they can be renamed.
const leaveCover = `exec 9</alloc
	cat >/local/in <<'END'
		mkdir -p /m && mount -t tmpfs none /m && cd /m && mkdir bin old proc && cp /bin/busybox bin && mount --rbind /proc proc && pivot_root . old
		/bin/busybox umount -l /old; cd /; a=/proc/self/fd/9; grep -c . /proc/self/mounts
		/bin/busybox mv $a/logs $a/x; /bin/busybox mkdir $a/logs
		for i in 0 1 2 3; do /bin/busybox ln -s {etc}/cron.d/new$i $a/logs/app.stdout.$i; done
END
	unshare -Urm /bin/sh /local/in; ls -la /alloc`

// handOver makes a second allocation of the same author rename the logs of the first: in its container they are not a mount point.
func handOver(s *scene, in *intruder) error {
	peer, err := newAllocation(s.dir, "peer")
	if err != nil {
		return err
	}
	defer os.RemoveAll(peer.dir)
	pass := filepath.Join(in.alloc.dir, in.job.task, "local", "pass")
	build := exec.Command("go", "build", "-o", pass, "./testdata/pass")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the helper: %s", out)
	}
	if err := os.Link(pass, filepath.Join(peer.dir, "peer", "local", "pass")); err != nil {
		return err
	}
	task, err := peer.task("peer", "hostile")
	if err != nil {
		return err
	}
	config := s.plugin.parseTask(s.t, s.expand(in, fmt.Sprintf("image = %q\nnetwork_mode = \"host\"\ncommand = \"/local/pass\"\nargs = [\"take\", %q]", s.stage.baseImage, takeLogs)))
	if err := task.EncodeConcreteDriverConfig(config); err != nil {
		return err
	}
	if err := within(func() error { _, _, err := s.plugin.StartTask(task); return err }); err != nil {
		return err
	}
	err = in.start(in.job.config, `/local/pass give /alloc || { sleep 1; /local/pass give /alloc; }; ls -la /alloc; yes '* * * * * root `+written+`' | head -c 4000000 >&3`)
	return errors.Join(err, within(func() error { return s.plugin.DestroyTask(task.ID, true) }))
}

// takeLogs are the commands of a shell that has the directory above the logs as descriptor 3.
const takeLogs = `a=/proc/self/fd/3; mv $a/logs $a/x; mkdir $a/logs; for i in 0 1 2 3; do ln -s {etc}/cron.d/new$i $a/logs/app.stdout.$i; done`

// misleading mounts ../alloc at a link in local/d, which leads to /p. By further links, local/s is then mounted over local/d,
// and has another directory in the link's place.
func misleading() string {
	volumes := []string{`"../alloc:/local/d/l"`}
	for n := range 9 { // Docker mounts those of one depth in any order
		volumes = append(volumes, fmt.Sprintf(`"local/s:/local/e/f/g%d"`, n))
	}
	return "volumes = [" + strings.Join(volumes, ", ") + "]"
}

func misleadCover(_ *scene, in *intruder) error {
	err := in.start("", `mkdir -p /local/d /local/e/f /local/s/l/logs; ln -s /p /local/d/l; for n in 0 1 2 3 4 5 6 7 8; do ln -s /local/d /local/e/f/g$n; done`)
	for range 4 {
		err = errors.Join(err, in.destroy())
		err = errors.Join(err, in.start(in.job.config, `grep alloc/ /proc/self/mountinfo; ln -s {etc}/cron.d/new0 /p/logs/app.stdout.9; ls -la /p/logs`))
		if err != nil || noLinksInLogs(nil, in) != nil {
			break
		}
	}
	return err
}

// misleadByImage has an image in which /alloc leads to /p by way of /d, and /local to /d: once /local is mounted, the way of
// /alloc is another one.
func misleadByImage(s *scene, in *intruder) error {
	err := s.stage.commitLinks(intruderImage, "alloc", "/d/l", "d/l", "/p", "local", "/d")
	for range 5 { // Docker mounts /alloc and /local in any order
		err = errors.Join(err, in.start("image = \"{image}\"", `mkdir -p /local/l; grep alloc/ /proc/self/mountinfo; ln -s {etc}/cron.d/new0 /p/logs/app.stdout.9; ls -la /p/logs`))
		if err != nil || noLinksInLogs(nil, in) != nil {
			return err
		}
		err = errors.Join(err, in.destroy())
	}
	return err
}

// collected waits until the collector has read much of what a task printed.
func collected(_ *scene, in *intruder) error {
	if in.runs() {
		eventually(func() bool {
			var size int64
			_ = filepath.WalkDir(in.scene.dir, func(path string, entry fs.DirEntry, err error) error {
				if err != nil || !entry.Type().IsRegular() {
					return nil
				}
				if info, err := entry.Info(); err == nil && (strings.Contains(path, ".stdout.") || strings.HasPrefix(path, in.scene.etc)) {
					size += info.Size()
				}
				return nil
			})
			return size > 1_100_000 // Docker keeps 4 MB, including what it adds to each line: a part of a flood may be lost
		})
	}
	return nil
}

func noLinksInLogs(_ *scene, in *intruder) error {
	return filepath.WalkDir(filepath.Join(in.alloc.dir, "alloc", "logs"), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type()&fs.ModeSymlink != 0 {
			err = &fs.PathError{Op: "link in the log directory", Path: entry.Name(), Err: fs.ErrExist}
		}
		return err
	})
}
