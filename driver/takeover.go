// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/nomad/client/allocdir"
	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/label"
	"nomad-gpu-mem/internal/pause"
)

// Under BuiltinName this driver takes the place of Nomad's own, and Nomad hands it the
// tasks that the other has started. They keep running as they are, each in its container. Three
// things are different in them:
//
//   - The container carries none of our labels: the journal knows it by its ID.
//   - A process of the other driver copies its output, and knows no checkpoint.
//   - The group's network is held by a pause container of another name.

// builtinSandbox and the allocation name a pause container of Nomad's own driver.
const builtinSandbox = "nomad_init_"

// isBuiltin reports whether Nomad's own driver started the task. Its handles have the
// same version and the same names for what they keep.
func (s TaskState) isBuiltin() bool { return s.Attempt == "" }

// isBuiltinTask reports whether a container is a task of Nomad's own driver: it has the
// label of the allocation and the task's directories mounted. A pause container has none.
func isBuiltinTask(c docker.Container) bool {
	alloc := filepath.Dir(c.Mounts[allocdir.SharedAllocContainerPath])
	local := filepath.Dir(c.Mounts[allocdir.TaskLocalContainerPath])
	return filepath.Base(alloc) == c.Labels[label.BuiltinAlloc] && filepath.Dir(local) == alloc
}

// takeOver makes the handle one of a task that Nomad's own driver started.
func (h *handle) takeOver(from TaskState) {
	h.builtin = true
	if from.ReattachConfig != nil {
		h.logger = from.ReattachConfig.Pid
	}
}

// builtinBookings are those of a task that Nomad's own driver started. It has claimed
// none of them; that is made up for now. A GPU that another device plugin gave is
// nothing of ours, and no reason to end the task.
func builtinBookings(task *drivers.TaskConfig) ([]allocator.Booking, error) {
	return allocator.ParseBookings(task.DeviceEnv)
}

// takeOverLogs ends the process that has copied the task's output until now, once the
// pipes have another writer, and continues from there. An earlier process of this plugin
// may have come half the way. What is written in the moment between may come twice.
func (c *logCopier) takeOverLogs(ctx context.Context) bool {
	if !c.openPipes(ctx) {
		return false
	}
	if c.position == (docker.LogPosition{}) {
		now := docker.LogMark{Time: time.Now()}
		c.position = docker.LogPosition{Stdout: now, Stderr: now}
		c.saveCheckpoint()
		if pause.For(ctx, handoverTime) != nil {
			return false
		}
	}
	if err := endBuiltinLogger(c.handle.logger); err != nil {
		c.process.logger.Warn("Nomad's own driver still copies a task's output, which comes twice", "task_id", c.handle.task.ID, "error", err)
	}
	return true
}

// handoverTime is what a line may take from the container to the pipe.
const handoverTime = 100 * time.Millisecond

// endBuiltinLogger ends a process that copies output for Nomad's own driver. One that
// is gone is fine; its pid may be another process's by now.
func endBuiltinLogger(pid int) error {
	if pid <= 1 {
		return nil
	}
	commandLine, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if words := strings.Split(string(commandLine), "\x00"); err != nil || len(words) < 2 || words[1] != "docker_logger" {
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("cannot end process %d: %w", pid, err)
	}
	return nil
}

// createSandbox starts a group's pause container, or finds the running one.
func (s *services) createSandbox(alloc string, spec docker.SandboxSpec) (sandbox docker.Sandbox, created bool, err error) {
	if s.name == BuiltinName {
		taken, err := s.builtinSandbox(s.ctx, alloc)
		if err == nil && taken.Running {
			return docker.Sandbox{ID: taken.ID, Key: taken.SandboxKey}, false, nil
		}
		if err == nil { // it has ended, and its namespace with it
			err = s.engine.RemoveSandbox(s.ctx, taken.ID)
		}
		if err != nil && !errors.Is(err, docker.ErrNotFound) {
			return docker.Sandbox{}, false, err
		}
	}
	return s.engine.CreateSandbox(s.ctx, spec)
}

// findSandbox finds a group's pause container. docker.ErrNotFound if there is none.
func (s *services) findSandbox(ctx context.Context, alloc string) (docker.Sandbox, error) {
	found, err := s.sandbox(ctx, label.SandboxName(alloc), label.Sandbox, alloc)
	if s.name == BuiltinName && errors.Is(err, docker.ErrNotFound) {
		found, err = s.builtinSandbox(ctx, alloc)
	}
	return docker.Sandbox{ID: found.ID, Key: found.SandboxKey}, err
}

// builtinSandbox looks for the pause container that Nomad's own driver made for a
// group. docker.ErrNotFound if there is none.
func (s *services) builtinSandbox(ctx context.Context, alloc string) (docker.Container, error) {
	return s.sandbox(ctx, builtinSandbox+alloc, label.BuiltinAlloc, alloc)
}

// sandbox looks for a pause container. A label alone proves nothing, since images bring
// labels of their own, and neither does a name.
func (s *services) sandbox(ctx context.Context, name, label, alloc string) (docker.Container, error) {
	found, err := s.engine.Inspect(ctx, name)
	if err == nil && found.Labels[label] != alloc {
		err = fmt.Errorf("container %s holds no network of allocation %s: %w", name, alloc, docker.ErrNotFound)
	}
	return found, err
}
