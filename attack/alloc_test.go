// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package attack

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"github.com/hashicorp/nomad/client/logmon"
	"github.com/hashicorp/nomad/helper/uuid"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/allocator"
)

// allocation has the directories of one allocation, as a Nomad client makes them below a data_dir.
type allocation struct {
	id, dir string
	starts  int
}

// newAllocation makes the directories, with the modes that a client gives them.
func newAllocation(data string, tasks ...string) (*allocation, error) {
	id := uuid.Generate()
	a := &allocation{id: id, dir: filepath.Join(data, "alloc", id)}
	dirs := map[string]os.FileMode{"alloc/logs": 0o777, "alloc/tmp": 0o777, "alloc/data": 0o777}
	for _, task := range tasks {
		maps.Copy(dirs, map[string]os.FileMode{task + "/local": 0o777, task + "/secrets": 0o777, task + "/tmp": 0o777})
	}
	for dir, mode := range dirs {
		path := filepath.Join(a.dir, dir)
		if err := os.MkdirAll(path, 0o755); err != nil {
			return nil, err
		}
		for _, each := range []string{path, filepath.Dir(path)} {
			if err := os.Chmod(each, mode); err != nil {
				return nil, err
			}
		}
	}
	return a, nil
}

// task is the next start of one of its tasks, as the client passes it to a driver.
func (a *allocation) task(name, namespace string, bookings ...allocator.Booking) (*drivers.TaskConfig, error) {
	a.starts++
	task := &drivers.TaskConfig{
		ID: fmt.Sprintf("%s/%s/%d", a.id, name, a.starts), Name: name, JobName: namespace + "-job", JobID: namespace + "-job",
		TaskGroupName: namespace + "-group", Namespace: namespace, AllocID: a.id, AllocDir: a.dir, NodeID: nodeID, NodeName: "node-1",
		StdoutPath: os.DevNull, StderrPath: os.DevNull, Env: map[string]string{}, DeviceEnv: map[string]string{},
		Resources: &drivers.Resources{
			NomadResources: &structs.AllocatedTaskResources{
				Memory: structs.AllocatedMemoryResources{MemoryMB: 64}, Cpu: structs.AllocatedCpuResources{CpuShares: 100},
			},
			LinuxResources: &drivers.LinuxResources{CPUShares: 100, PercentTicks: 0.1, MemoryLimitBytes: 64 << 20},
		},
	}
	for _, b := range bookings { // what the device plugin's Reserve answers
		key, value, err := b.Env()
		if err != nil {
			return nil, err
		}
		for _, env := range []map[string]string{task.Env, task.DeviceEnv} {
			env[key], env["NVIDIA_VISIBLE_DEVICES"] = value, string(b.GPU)
		}
	}
	return task, nil
}

const nodeID = "5a1e0000-0000-4000-8000-000000000001"

// collectLogs runs Nomad's own log collector for a start of a task: it reads pipes in
// alloc/logs and writes files beside them, as root. As in a client, one collector serves
// all starts, and opens its pipes again only after they have ended.
func (a *allocation) collectLogs(collector logmon.LogMon, task *drivers.TaskConfig) error {
	logs := filepath.Join(a.dir, "alloc", "logs")
	task.StdoutPath = filepath.Join(logs, "."+task.Name+".stdout.fifo")
	task.StderrPath = filepath.Join(logs, "."+task.Name+".stderr.fifo")
	return collector.Start(&logmon.LogConfig{
		LogDir: logs, StdoutLogFile: task.Name + ".stdout", StderrLogFile: task.Name + ".stderr",
		StdoutFifo: task.StdoutPath, StderrFifo: task.StderrPath, MaxFiles: 10, MaxFileSizeMB: 1,
	})
}
