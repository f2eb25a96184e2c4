// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"
)

// setPool writes the pool as Nomad does.
func setPool(t *testing.T, task *drivers.TaskConfig, cpus string) {
	t.Helper()
	path := filepath.Join(task.Resources.LinuxResources.CpusetCgroupPath, "cpuset.cpus")
	must.NoError(t, os.WriteFile(path, []byte(cpus+"\n"), 0o600))
}

// Cores that a task has reserved are taken from those that the others share, while they
// run, and returned at its end.
func TestSharedCPUs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``)
	task.Resources.LinuxResources.CpusetCgroupPath = t.TempDir()
	setPool(t, task, "1")
	handle, _, err := d.StartTask(task)
	must.NoError(t, err)
	must.Eq(t, "1", w.engine.cpus())
	setPool(t, task, "0-4095")
	eventually(t, func() bool { return w.engine.cpus() == "0-4095" })
	w.engine.setAway(true)
	setPool(t, task, "0")
	w.engine.setAway(false)
	eventually(t, func() bool { return w.engine.cpus() == "0" })

	d.kill()
	setPool(t, task, "2")
	must.NoError(t, w.boot().RecoverTask(handle))
	eventually(t, func() bool { return w.engine.cpus() == "2" })
}

func TestSharedCPUsOfATask(t *testing.T) {
	t.Parallel()
	group := t.TempDir()
	task := &drivers.TaskConfig{}
	must.Eq(t, "", sharedCPUs(task))
	task.Resources = &drivers.Resources{LinuxResources: &drivers.LinuxResources{CpusetCgroupPath: group}}
	must.Eq(t, "", sharedCPUs(task), must.Sprint("no such file, as with another version of the kernel's groups"))
	setPool(t, task, "0-1")
	must.Eq(t, "0-1", sharedCPUs(task))
	task.Resources.LinuxResources.CpusetCpus = "3"
	must.Eq(t, "", sharedCPUs(task), must.Sprint("it has cores of its own"))
}
