// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package attack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/client/logmon"
	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/allocator"
)

// intruder is a hostile task, from its first start until all of it is removed.
type intruder struct {
	t     *testing.T
	scene *scene
	attack
	alloc *allocation
	local *os.Root               // local/, also after the task has moved it
	dirs  map[string]os.FileInfo // as the client made them

	task      *drivers.TaskConfig // of the last start
	handle    *drivers.TaskHandle
	refused   error // why the last start failed
	container container.InspectResponse
	started   []string // IDs of the starts that have not ended
	network   *drivers.NetworkIsolationSpec
	collector logmon.LogMon
	output    strings.Builder // what the scripts printed
}

// sibling is another task of every hostile group.
const sibling = "other"

func (s *scene) newIntruder(t *testing.T, a attack) (*intruder, error) {
	if a.job.task == "" {
		a.job.task = "app"
	}
	alloc, err := newAllocation(s.dir, a.job.task, sibling)
	if err != nil {
		return nil, err
	}
	in := &intruder{t: t, scene: s, attack: a, alloc: alloc, dirs: map[string]os.FileInfo{}}
	for _, name := range []string{"", "alloc", "alloc/logs", a.job.task, a.job.task + "/local", a.job.task + "/secrets", sibling} {
		if in.dirs[name], err = os.Lstat(filepath.Join(alloc.dir, name)); err != nil {
			return nil, err
		}
	}
	in.local, err = os.OpenRoot(filepath.Join(alloc.dir, a.job.task, "local"))
	return in, err
}

// act runs the row's attack.
func (in *intruder) act() error {
	if in.job.group {
		if err := in.makeNetwork(); err != nil {
			return err
		}
	}
	if in.before != nil {
		if err := in.before(in.scene, in); err != nil {
			return err
		}
	}
	if in.attack.act != nil {
		return in.attack.act(in.scene, in)
	}
	if in.job.first != "" {
		if err := in.start(in.job.firstConfig, in.job.first); err != nil {
			return err
		}
		if err := in.destroy(); err != nil {
			return err
		}
	}
	return in.start(in.job.config, in.job.script)
}

func (in *intruder) makeNetwork() error {
	return within(func() (err error) {
		in.network, _, err = in.scene.plugin.CreateNetwork(in.alloc.id, &drivers.NetworkCreateRequest{Hostname: "hostile"})
		if err == nil {
			in.network.HostsConfig = &drivers.HostsConfig{Address: "10.99.0.1", Hostname: "hostile"}
		}
		return err
	})
}

// prepare returns a start of one of the group's tasks, as Nomad passes it to the driver.
func (in *intruder) prepare(name, config, script string) (*drivers.TaskConfig, error) {
	var bookings []allocator.Booking
	if in.job.slice {
		bookings = append(bookings, in.scene.stage.gpus[0].slice(4, 5))
	}
	task, err := in.alloc.task(name, "hostile", bookings...)
	if err != nil {
		return nil, err
	}
	if in.job.as != nil {
		in.job.as(task)
	}
	for key, value := range in.job.env {
		task.Env[in.scene.expand(in, key)] = in.scene.expand(in, value)
	}
	if task.NetworkIsolation = in.network; in.network != nil || in.job.dns {
		task.DNS = &drivers.DNSConfig{Servers: []string{"6.6.6.6"}, Options: []string{"ndots:1\n" + written}}
	}
	text := in.scene.expand(in, config)
	if !hasKey(text, "image") {
		text += fmt.Sprintf("\nimage = %q", in.scene.stage.baseImage)
	}
	if !hasKey(text, "command") {
		script := "exec 3>&1; { " + in.scene.expand(in, script) + "\n} >/local/out 2>&1; echo >/local/done; exec sleep 100000"
		text += fmt.Sprintf("\ncommand = \"/bin/sh\"\nargs = [\"-c\", %q]", strings.ReplaceAll(script, "${", "$${"))
	}
	return task, task.EncodeConcreteDriverConfig(in.scene.plugin.parseTask(in.t, text))
}

// written is a line that the attacker tries to write into a file of the host.
const written = "WRITTEN-BY-THE-ATTACKER"

func hasKey(config, key string) bool {
	for line := range strings.Lines(config) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == key && fields[1] == "=" {
			return true
		}
	}
	return false
}

// start starts the task and waits until its script has ended. A refused start is a
// failed attack; a start that hangs is a breach.
func (in *intruder) start(config, script string) error {
	task, err := in.prepare(in.job.task, config, script)
	if err != nil {
		return err
	}
	return in.startTask(task)
}

func (in *intruder) startTask(task *drivers.TaskConfig) (err error) {
	if in.job.logs {
		if in.collector == nil {
			in.collector = logmon.NewLogMon(hclog.NewNullLogger())
		}
		if err = in.alloc.collectLogs(in.collector, task); err != nil {
			in.t.Logf("log collector: %v", err)
		}
	}
	in.task, in.container = task, container.InspectResponse{}
	in.started = append(in.started, task.ID)
	err = within(func() (err error) { in.handle, _, err = in.scene.plugin.StartTask(task); return err })
	if in.refused = err; err != nil {
		in.t.Logf("not started: %.600v", err)
		if errors.Is(err, errHangs) {
			return fmt.Errorf("starting the task: %w", err)
		}
		return nil
	}
	return in.findContainer()
}

// findContainer also waits for the script.
func (in *intruder) findContainer() error {
	found, err := in.scene.stage.api.ContainerList(in.scene.stage.ctx, container.ListOptions{
		All: true, Filters: filters.NewArgs(filters.Arg("label", "nomad-gpu-mem.task_id="+in.task.ID)),
	})
	if err != nil {
		return err
	}
	if len(found) != 1 {
		return fmt.Errorf("%d containers carry the label of the task that was started", len(found))
	}
	id := found[0].ID
	eventually(func() bool {
		in.container, err = in.scene.stage.inspect(id)
		_, statErr := in.local.Stat("done")
		return err != nil || !in.container.State.Running || statErr == nil
	})
	if out, err := in.local.ReadFile("out"); err == nil {
		in.output.Write(out)
		in.t.Logf("the script printed: %.600q", out)
	}
	_ = in.local.Remove("done")
	return err
}

// runs reports whether there is a container to check.
func (in *intruder) runs() bool {
	return in.container.ContainerJSONBase != nil && in.container.State.Running
}

// destroy ends the starts of the task, as Nomad does.
func (in *intruder) destroy() error {
	var failed []error
	for _, id := range in.started {
		err := within(func() error { return in.scene.plugin.DestroyTask(id, true) })
		if err != nil && !errors.Is(err, drivers.ErrTaskNotFound) {
			failed = append(failed, fmt.Errorf("destroying the task: %w", err))
		}
	}
	in.started = nil
	return errors.Join(failed...)
}

// evict removes the allocation, as a client does.
func (in *intruder) evict() error {
	in.releaseHangs()
	found := []error{in.destroy()}
	if in.network != nil {
		found = append(found, within(func() error { return in.scene.plugin.DestroyNetwork(in.alloc.id, in.network) }))
	}
	in.stopCollector()
	_ = in.local.Close()
	return errors.Join(append(found, os.RemoveAll(in.alloc.dir))...)
}

// releaseHangs opens the pipes that the task has made, so that calls that wait for them return.
func (in *intruder) releaseHangs() {
	_ = filepath.WalkDir(in.alloc.dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type()&fs.ModeNamedPipe != 0 {
			openOnce(path)
		}
		return nil
	})
}

// openOnce opens both ends of a pipe: calls that wait for the other end return.
func openOnce(path string) {
	if pipe, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0); err == nil {
		_ = pipe.Close()
	}
}

// stopCollector ends the log collector, which may still wait for a writer.
func (in *intruder) stopCollector() {
	if in.collector == nil {
		return
	}
	openOnce(in.task.StdoutPath)
	openOnce(in.task.StderrPath)
	_ = in.collector.Stop()
	in.collector = nil
}

// readSecret reports whether the task read the secret.
func (in *intruder) readSecret() error {
	if strings.Contains(in.output.String(), secret) {
		return errors.New("the task read what only the host may read")
	}
	if in.container.ContainerJSONBase != nil && strings.Contains(asJSON(in.container), secret) {
		return errors.New("the driver put into the container's settings what only the host may read")
	}
	return nil
}
