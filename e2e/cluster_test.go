// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/consul"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/internal/nvml/fakenvml"
)

// cluster is a running development cluster.
type cluster struct {
	run   string            // its run directory
	env   []string          // for its scripts
	vars  map[string]string // what it exports to its users
	nomad *api.Client
	table *allocator.Table
	cri   *docker.Client
}

// startCluster starts a cluster in its own slot, with these GPUs.
func startCluster(gpus fakenvml.State, settings ...string) (*cluster, error) {
	run, err := os.MkdirTemp("", "gpu-mem-e2e-")
	if err != nil {
		return nil, err
	}
	if run, err = filepath.EvalSymlinks(run); err != nil { // as the scripts name it
		return nil, err
	}
	slot, err := claimSlot(run)
	if err != nil {
		return nil, errors.Join(err, os.Remove(run))
	}
	state := filepath.Join(run, "gpus.state")
	if err := gpus.Write(state); err != nil {
		return nil, err
	}
	c := &cluster{run: run}
	c.env = append(os.Environ(),
		"GPU_MEM_SLOT="+strconv.Itoa(slot), "GPU_MEM_RUN="+run, "GPU_MEM_STORE=consul",
		"GPU_MEM_GPUS=fake", "GPU_MEM_FAKE_STATE="+state)
	c.env = append(c.env, settings...)
	if _, err := c.script("cluster.sh", "up"); err != nil {
		return c, err
	}
	return c, c.connect()
}

// connect makes the clients from what the cluster exports.
func (c *cluster) connect() error {
	exports, err := c.script("cluster.sh", "env")
	if err != nil {
		return err
	}
	c.vars = parseExports(exports)
	if c.nomad, err = api.NewClient(&api.Config{Address: c.vars["NOMAD_ADDR"]}); err != nil {
		return err
	}
	store, err := consul.New(consul.Config{Address: c.vars["CONSUL_HTTP_ADDR"], Prefix: "gpu-mem"})
	if err != nil {
		return err
	}
	c.table = allocator.NewTable(store)
	c.cri, err = docker.New(docker.Config{Endpoint: c.vars["DOCKER_HOST"]})
	return err
}

// down stops all of the cluster and removes its directory.
func (c *cluster) down() error {
	_, err := c.script("cluster.sh", "down")
	return errors.Join(err, os.RemoveAll(c.run))
}

// script runs one of the development cluster's scripts in this cluster's slot.
func (c *cluster) script(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join("..", "scripts", name), args...)
	cmd.Env = c.env
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out.String(), log.String())
	}
	return out.String(), nil
}

// cli runs the operator's command line against this cluster's table, and returns what it
// printed to its standard output.
func (c *cluster) cli(t *testing.T, args ...string) string {
	t.Helper()
	return output(t, c.command(args...))
}

// output runs the command, which must succeed, and returns its standard output. Warnings
// on standard error are not part of a value.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.Output()
	must.NoError(t, err, must.Sprintf("%v: %s%s", cmd.Args, out, log.String()))
	return string(out)
}

// processes returns the pids of this cluster's processes with the given name,
// such as a plugin's file name in the plugin directory.
func (c *cluster) processes(t *testing.T, name string) []int {
	t.Helper()
	return slices.DeleteFunc(pidsNaming(t, c.run), func(pid int) bool {
		return filepath.Base(commandLine(pid)[0]) != name
	})
}

// pidsNaming returns the processes with the directory in their command line.
func pidsNaming(t *testing.T, dir string) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*")
	must.NoError(t, err)
	var pids []int
	for _, file := range files {
		pid, err := strconv.Atoi(filepath.Base(file))
		must.NoError(t, err)
		if strings.Contains(strings.Join(commandLine(pid), " "), dir) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// commandLine returns the words of a process's command line; one empty word if
// it has ended.
func commandLine(pid int) []string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.Split(string(text), "\x00")
}

// kill sends SIGKILL to the cluster's processes of that name, and returns once they
// are gone.
func (c *cluster) kill(t *testing.T, name string) {
	t.Helper()
	pids := c.processes(t, name)
	must.SliceNotEmpty(t, pids, must.Sprintf("no process %s of this cluster", name))
	for _, pid := range pids {
		must.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	eventually(t, 10*time.Second, name+" is gone", func() error {
		for _, pid := range c.processes(t, name) {
			if slices.Contains(pids, pid) {
				return fmt.Errorf("pid %d lives", pid)
			}
		}
		return nil
	})
}

// parseExports reads lines of `export NAME='value'`.
func parseExports(text string) map[string]string {
	vars := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "export ")
		if name, value, ok := strings.Cut(line, "="); ok {
			vars[name] = strings.Trim(value, `'"`)
		}
	}
	return vars
}

// eventually repeats check until it returns nil.
func eventually(t *testing.T, within time.Duration, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, within, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
