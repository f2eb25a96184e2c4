// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package soak

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// daemon is a process that the scripts started; a file has its pid.
type daemon struct {
	name, run string
	host      string // its own host name; empty: the machine's
}

// life records how a process was started.
type life struct {
	pid       int
	args, env []string
}

func (d daemon) pidFile() string { return filepath.Join(d.run, d.name+".pid") }

// life reads how the running process was started.
func (d daemon) life() (life, error) {
	text, err := os.ReadFile(d.pidFile())
	if err != nil {
		return life{}, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return life{}, fmt.Errorf("%s: %w", d.pidFile(), err)
	}
	args, err := words(pid, "cmdline")
	if err != nil {
		return life{}, err
	}
	env, err := words(pid, "environ")
	if err == nil && len(args) == 0 {
		err = fmt.Errorf("%s, pid %d, has ended", d.name, pid)
	}
	return life{pid: pid, args: args, env: env}, err
}

// words reads a list out of /proc.
func words(pid int, file string) (list []string, err error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), file))
	for word := range bytes.SplitSeq(bytes.TrimSuffix(text, []byte{0}), []byte{0}) {
		if len(word) > 0 {
			list = append(list, string(word))
		}
	}
	return list, err
}

// end sends the process a signal and waits until it has ended; a process that does not
// react is killed.
func (d daemon) end(l life, signal syscall.Signal) error {
	if err := syscall.Kill(l.pid, signal); err != nil {
		return err
	}
	if gone(l.pid, 30*time.Second) {
		return nil
	}
	_ = syscall.Kill(l.pid, syscall.SIGKILL)
	if !gone(l.pid, 10*time.Second) {
		return fmt.Errorf("%s, pid %d, does not end", d.name, l.pid)
	}
	return nil
}

// gone waits until a process has ended.
func gone(pid int, within time.Duration) bool {
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if args, err := words(pid, "cmdline"); err != nil || len(args) == 0 {
			return true
		}
	}
	return false
}

// respawn starts the process as it was started before.
func (c *cluster) respawn(d daemon, l life) error {
	if d.name == "dockerd" { // a new one does not start with the file of a killed one
		_ = os.Remove(filepath.Join(d.run, "docker-exec.pid"))
	}
	log, err := os.OpenFile(filepath.Join(d.run, d.name+".log"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	args := l.args
	if d.host != "" {
		args = append([]string{"unshare", "--uts", "sh", "-c", `hostname "$0" && exec "$@"`, d.host}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = l.env, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	c.respawns.Go(func() { _ = cmd.Wait() })
	return os.WriteFile(d.pidFile(), []byte(strconv.Itoa(cmd.Process.Pid)+"\n"), 0o600)
}

// agentLives records how the agents were started.
func (c *cluster) agentLives() (lives []life, err error) {
	for _, m := range c.machines {
		l, err := c.agent(m).life()
		if err != nil {
			return nil, err
		}
		lives = append(lives, l)
	}
	return lives, nil
}

// reviveAgents starts the agents that do not run, as a service manager would: an agent exits
// if a fault ends a plugin that it has just started to read its configuration.
func (c *cluster) reviveAgents(lives []life) error {
	for i, m := range c.machines {
		if _, err := c.agent(m).life(); err == nil {
			continue
		}
		if err := c.respawn(c.agent(m), lives[i]); err != nil {
			return err
		}
	}
	return nil
}

// agent is the Nomad agent of a node.
func (c *cluster) agent(m *machine) daemon {
	name := "nomad"
	if m.number > 0 {
		name += strconv.Itoa(m.number)
	}
	return daemon{name: name, run: c.run(), host: m.name()}
}

func (c *cluster) consulServer() daemon { return daemon{name: "consul", run: c.run()} }

// Names of the plugins in the plugin directory.
const (
	driverPlugin = "nomad-driver-gpu-docker"
	devicePlugin = "nomad-device-gpu-mem"
)

// plugins returns the pids of a node's serving processes of a plugin. Nomad also starts one
// for a moment to query its name.
func (c *cluster) plugins(m *machine, name string) (pids []int) {
	for _, pid := range allPids() {
		args, err := words(pid, "cmdline")
		if err != nil || len(args) == 0 || args[0] != filepath.Join(c.run(), "plugins", name) {
			continue
		}
		if env, err := words(pid, "environ"); err == nil && contains(env, "GPU_MEM_NODE="+strconv.Itoa(m.number)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func contains(list []string, word string) bool {
	for _, w := range list {
		if w == word {
			return true
		}
	}
	return false
}

func allPids() (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// signalAll sends a signal to all of the processes that still live.
func signalAll(pids []int, signal syscall.Signal) error {
	if len(pids) == 0 {
		return errNothing
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// errNothing is returned when there is no target for an operation.
var errNothing = errors.New("nothing to do it to")
