// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package driver

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/client/logmon/logging"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"
	"golang.org/x/sys/unix"

	"nomad-gpu-mem/driver/config"
	"nomad-gpu-mem/driver/logpipe/logpipetest"
	"nomad-gpu-mem/driver/netfile"
)

// These tests run hostile jobs on a real engine and then look at the host: at a disk, at files of its own, at its mounts.
// Each job has what any job has with the default configuration, and what it did in an earlier run of the task.

// again is another start of a task, as by its restart policy.
func (w *world) again(task *drivers.TaskConfig, script, hcl string) *drivers.TaskConfig {
	w.t.Helper()
	next, _ := w.script(script, hcl)
	next.ID, next.AllocID, next.AllocDir = task.AllocID+fmt.Sprintf("/app/%d", w.starts), task.AllocID, task.AllocDir
	return next
}

// attempts runs a script in the container that must not stop at what fails, and returns what it printed.
func (d *driver) attempts(t *testing.T, w *world, task *drivers.TaskConfig, out *logpipetest.Collector) string {
	t.Helper()
	_, _, err := d.StartTask(task)
	if err != nil {
		t.Logf("refused: %v", err)
		return ""
	}
	d.ended(t, task)
	eventually(t, func() bool { return strings.Contains(out.Got(), "done\n") })
	t.Log(out.Got())
	return out.Got()
}

// disk is a block device of the host with known content, and its number.
func disk(t *testing.T) (image, device string, number uint64) {
	t.Helper()
	image = filepath.Join(t.TempDir(), "disk")
	must.NoError(t, os.WriteFile(image, bytes.Repeat([]byte("precious"), 1<<14), 0o600))
	out, err := exec.Command("losetup", "--find", "--show", image).CombinedOutput()
	must.NoError(t, err, must.Sprint(string(out)))
	device = strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command("losetup", "--detach", device).Run() })
	var stat unix.Stat_t
	must.NoError(t, unix.Stat(device, &stat))
	return image, device, stat.Rdev
}

// A device node in the place where log checkpoints once were is not written to, whichever task made it.
func TestServiceNoTaskWritesToADisk(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	d := w.boot()
	image, device, number := disk(t)
	const checkpoint = ".gpu-docker-logs.json"
	task, out := w.script(fmt.Sprintf(`rm -f /t/%[1]s; mknod /t/%[1]s b %[2]d %[3]d; echo done`,
		checkpoint, unix.Major(number), unix.Minor(number)), `volumes = [".:/t"]`)
	d.attempts(t, w, task, out)
	node := filepath.Join(task.TaskDir().Dir, checkpoint)
	must.FileNotExists(t, node, must.Sprint("the task wrote to its own directory"))
	must.NoError(t, unix.Mknod(node, unix.S_IFBLK|0o666, int(number))) // as a task of an earlier version could
	next := w.again(task, `echo one; echo two; echo done`, ``)
	next.StdoutPath = logpipetest.Mkfifo(t)
	handle, _, err := d.StartTask(next)
	must.NoError(t, err)
	out = logpipetest.Collect(t, next.StdoutPath)
	eventually(t, func() bool { return strings.Contains(out.Got(), "done\n") })
	d.kill()
	d = w.boot()
	must.NoError(t, d.RecoverTask(handle))
	d.ended(t, next)

	must.NoError(t, exec.Command("blockdev", "--flushbufs", device).Run())
	text, err := os.ReadFile(image)
	must.NoError(t, err)
	must.Eq(t, 0, len(bytes.ReplaceAll(text, []byte("precious"), nil)), must.Sprint("the disk was written to"))
}

// A link in the place of the task's directory does not lead its resolv.conf to the host's.
func TestServiceNoTaskReplacesFilesOfTheHost(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	d := w.boot()
	v := newVictim(t)
	task, out := w.script(`mv /a/app /a/gone; mkdir /a/app; rmdir /a/app; ln -s `+string(v)+` /a/app; ln -sf `+string(v)+`/hosts /a/hosts
		echo done`, `volumes = ["..:/a"]`)
	d.attempts(t, w, task, out)
	info, err := os.Lstat(task.TaskDir().Dir)
	must.NoError(t, err)
	must.True(t, info.IsDir(), must.Sprint("the task renamed its own directory"))

	hostile := func() {
		next := w.again(task, `true`, `extra_hosts = ["db:10.0.0.9"]`)
		next.DNS = &drivers.DNSConfig{Servers: []string{"6.6.6.6"}}
		next.NetworkIsolation = &drivers.NetworkIsolationSpec{Mode: drivers.NetIsolationModeGroup}
		if _, _, err := d.StartTask(next); err == nil {
			d.ended(t, next)
		}
		v.untouched(t)
	}
	hostile()
	// And with the links there all the same, as a task of an earlier version could have left them.
	must.NoError(t, os.Rename(task.TaskDir().Dir, task.TaskDir().Dir+"-gone"))
	must.NoError(t, os.Symlink(string(v), task.TaskDir().Dir))
	_ = os.Remove(filepath.Join(task.AllocDir, netfile.HostsFile))
	must.NoError(t, os.Symlink(filepath.Join(string(v), netfile.HostsFile), filepath.Join(task.AllocDir, netfile.HostsFile)))
	hostile()
}

// Whatever a job mounts, it cannot make Nomad's own log collector write to a file of the host.
func TestServiceNoTaskLeadsTheLogCollector(t *testing.T) {
	t.Parallel()
	for name, hcl := range map[string]string{
		"the allocation":          `volumes = ["..:/a"]`,
		"by its absolute path":    `volumes = ["ALLOC:/a"]`,
		"by another spelling":     `volumes = ["local/../../alloc/..:/a"]`,
		"with a propagation":      `volumes = ["..:/a:rprivate"]`,
		"in a mount block":        "mount {\n type = \"bind\"\n source = \"..\"\n target = \"/a\"\n}",
		"in a list of mounts":     `mounts = [{ type = "bind", source = "..", target = "/a" }]`,
		"what tasks share":        `volumes = ["../alloc:/a/alloc"]`,
		"twice":                   `volumes = ["..:/a", "../alloc:/a/alloc", "..:/b"]`,
		"one over the other":      `volumes = ["../alloc:/a/alloc", "local:/a"]`,
		"below what all tasks do": `volumes = ["../alloc:/local/a", "../alloc:/alloc/data/a"]`,
		"its logs":                `volumes = ["../alloc/logs:/a/alloc/logs"]`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := realWorld(t)
			d := w.boot()
			victim := filepath.Join(t.TempDir(), "cron")
			must.NoError(t, os.WriteFile(victim, []byte("keep"), 0o600))
			task, out := w.script(`
				for a in /a /b; do mv $a/alloc $a/x && mkdir -p $a/alloc/logs; done
				for alloc in /alloc /a/alloc /b/alloc /local/a /alloc/data/a; do
					mv $alloc/logs $alloc/l && mkdir $alloc/logs
					rmdir $alloc/logs
					ln -s `+victim+` $alloc/logs/app.stdout.1
				done
				echo done`, strings.ReplaceAll(hcl, "ALLOC", "ALLOCDIR"))
			config, err := config.DecodeTask(task)
			must.NoError(t, err)
			for i := range config.Volumes {
				config.Volumes[i] = strings.ReplaceAll(config.Volumes[i], "ALLOCDIR", task.AllocDir)
			}
			must.NoError(t, task.EncodeConcreteDriverConfig(config))
			d.attempts(t, w, task, out)
			collectLogs(t, task.TaskDir().LogDir)
			text, err := os.ReadFile(victim)
			must.NoError(t, err)
			must.Eq(t, "keep", string(text))
		})
	}
}

// collectLogs is Nomad's own log collector, with more output than one of its files takes.
func collectLogs(t *testing.T, dir string) {
	t.Helper()
	rotator, err := logging.NewFileRotator(dir, "app.stdout", 10, 1024, hclog.NewNullLogger())
	must.NoError(t, err)
	for range 5 {
		_, err := rotator.Write(bytes.Repeat([]byte("root\n"), 200))
		must.NoError(t, err)
	}
	must.NoError(t, rotator.Close())
}

// What a job needs to write to stays writable. What holds the logs does not, however it is mounted.
func TestServiceWhatAJobNeedsIsWritable(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	d := w.boot()
	task, out := w.script(`for d in /local /secrets /alloc /alloc/data /s /d /o /n; do echo x > $d/file && echo $d; done; echo done`,
		`volumes = ["../alloc:/s", "../alloc/data:/d", "../other/local:/o", "new:/n:rw"]`)
	must.NoError(t, os.MkdirAll(filepath.Join(task.AllocDir, "other", "local"), 0o755))
	must.NoError(t, os.MkdirAll(filepath.Join(task.AllocDir, "alloc", "data"), 0o755))
	must.Eq(t, "/local\n/secrets\n/alloc/data\n/d\n/o\n/n\ndone\n", d.attempts(t, w, task, out))
}

// A FIFO that a task has made in the place of a file keeps no start of it from ending.
func TestServiceNoFIFOHoldsAStartUp(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	d := w.boot()
	task, out := w.script(`mkfifo /local/p; mknod /local/z c 1 5; echo done`, ``)
	d.attempts(t, w, task, out)
	for _, hcl := range []string{
		`security_opt = ["seccomp=local/p"]`, `security_opt = ["seccomp=local/z"]`,
		"load = \"p\"\nimage = \"driver-test/none:1\"", "load = \"z\"\nimage = \"driver-test/none:1\"",
	} {
		next := w.again(task, `true`, hcl)
		ended := make(chan error, 1)
		go func() { // ends with the start; a start that hangs fails the test
			_, _, err := d.StartTask(next)
			ended <- err
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		select {
		case err := <-ended:
			must.Error(t, err, must.Sprint(hcl))
		case <-ctx.Done():
			t.Fatalf("%s: the start hangs", hcl)
		}
		cancel()
		noContainer(t, next)
	}
}

// No mount of a container shows on the host, or stays there.
func TestServiceNoMountReachesTheHost(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	d := w.boot()
	for _, hcl := range []string{
		`volumes = ["local:/x:rshared", "../alloc:/x/y"]`,
		"volumes = [\"../alloc:/x/y\"]\nmount {\n type = \"bind\"\n source = \"local\"\n target = \"/x\"\n bind_options { propagation = \"rshared\" }\n}",
		`volumes = ["local:/x:rslave", "../alloc:/x/y"]`,
	} {
		task, out := w.script(`echo done`, hcl)
		must.NoError(t, exec.Command("mount", "--bind", task.AllocDir, task.AllocDir).Run())
		t.Cleanup(func() { _ = exec.Command("umount", "--recursive", "--lazy", task.AllocDir).Run() })
		must.NoError(t, exec.Command("mount", "--make-rshared", task.AllocDir).Run())
		before := mounts(t, task.AllocDir)
		d.attempts(t, w, task, out)
		must.Eq(t, before, mounts(t, task.AllocDir), must.Sprint(hcl))
	}
}

// mounts are the host's mounts at or below a directory.
func mounts(t *testing.T, dir string) (all []string) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	must.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4]+"/", dir+"/") {
			all = append(all, fields[4])
		}
	}
	return all
}
