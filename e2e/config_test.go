// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/nvml/fakenvml"
)

const (
	devicePlugin = "nomad-device-gpu-mem"
	driverPlugin = "nomad-driver-gpu-docker"

	// sayTime bounds how long an agent may take to report an error.
	sayTime = 30 * time.Second
)

// An invalid plugin configuration leads to one error that names the key and the value. A
// setting that can never work stops the agent at start-up; one that may work later
// does not.
func TestBadPluginConfig(t *testing.T) {
	for _, test := range []struct {
		name    string
		plugin  string
		config  string
		refuses bool
		says    []string // all in one line of the agent's output
	}{
		{"unknown key", devicePlugin, `memory_unti = "1GiB"`, true, []string{"memory_unti"}},
		{"zero unit", devicePlugin, `memory_unit = "0"`, true, []string{"memory_unit", `"0"`}},
		{"negative unit", devicePlugin, `memory_unit = "-1GiB"`, true, []string{"memory_unit", "-1GiB"}},
		{"unparsable unit", devicePlugin, `memory_unit = "much"`, true, []string{"memory_unit", "much"}},
		{"unparsable interval", devicePlugin, `poll_interval = "soon"`, true, []string{"poll_interval", "soon"}},
		{"unparsable size of one GPU", devicePlugin, `gpu "GPU-1" { reserved_memory = "much" }`, true,
			[]string{"GPU-1", "reserved_memory", "much"}},
		{"no GPU selected", devicePlugin, `include = [""]`, true, []string{"include"}},
		{"no Xid", devicePlugin, `xid_ignored = [13, 0]`, true, []string{"xid_ignored", "13 0"}},
		{"unit larger than a GPU", devicePlugin, `memory_unit = "64GiB"`, false, []string{"memory_unit", "64", bigGPU}},
		{"no library", devicePlugin, `nvml_library = "/absent/libnvidia-ml.so.1"`, false,
			[]string{"nvml_library", "/absent/libnvidia-ml.so.1"}},
		{"unknown store", devicePlugin, `table { store = "etcd" }`, true, []string{"table.store", "etcd"}},
		{"unreachable Consul", devicePlugin, `table { address = "127.0.0.1:1" }`, false, []string{"127.0.0.1:1"}},
		{"unknown key", driverPlugin, `claim_tiemout = "1m"`, true, []string{"claim_tiemout"}},
		{"unparsable time", driverPlugin, `claim_timeout = "soon"`, true, []string{"claim_timeout", "soon"}},
		{"unknown store", driverPlugin, `table { store = "etcd" }`, true, []string{"table.store", "etcd"}},
		{"unreachable Consul", driverPlugin, `table { address = "127.0.0.1:1" }`, false, []string{"127.0.0.1:1"}},
	} {
		t.Run(test.plugin+"/"+test.name, func(t *testing.T) {
			a := startAgent(t, test.plugin, test.config)
			if test.refuses {
				must.Error(t, a.waitExit(t))
			} else {
				a.waitReady(t)
			}
			eventually(t, sayTime, fmt.Sprintf("the agent says %q", test.says), func() error {
				return a.says(test.says)
			})
		})
	}
}

// Invalid arguments also lead to one error, which names the plugin block.
func TestBadPluginArgs(t *testing.T) {
	a := startAgent(t, driverPlugin, "", "--driver-name=exec")
	must.Error(t, a.waitExit(t))
	eventually(t, sayTime, "the agent says why", func() error {
		return a.says([]string{"[ERROR]", driverPlugin, `--driver-name: invalid name "exec"`, `["gpu-docker" "docker"]`})
	})
}

// agent is a separate Nomad agent with one of our plugins.
type agent struct {
	address string
	out     *lockedBuffer
	exited  chan error
}

// startAgent runs an agent until the test ends.
func startAgent(t *testing.T, plugin, config string, args ...string) *agent {
	t.Helper()
	dir := t.TempDir()
	state := filepath.Join(dir, "gpus.state")
	must.NoError(t, twoGPUs().Write(state))
	must.NoError(t, os.Mkdir(filepath.Join(dir, "plugins"), 0o755))
	program, err := filepath.Abs(filepath.Join("..", "bin", "nomad-gpu-mem"))
	must.NoError(t, err)
	must.NoError(t, os.Symlink(program, filepath.Join(dir, "plugins", plugin)))

	ports := freePorts(t, 3)
	file := filepath.Join(dir, "agent.hcl")
	must.NoError(t, os.WriteFile(file, agentConfig(t, dir, ports, plugin, config, args), 0o600))
	a := &agent{
		address: fmt.Sprintf("http://127.0.0.1:%d", ports[0]),
		out:     &lockedBuffer{},
		exited:  make(chan error, 1),
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, os.Getenv("NOMAD"), "agent", "-config", file)
	cmd.Env = append(os.Environ(), "FAKE_NVML_STATE="+state)
	cmd.Stdout, cmd.Stderr = a.out, a.out
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	must.NoError(t, cmd.Start())
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.exited <- cmd.Wait()
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		// An agent that refuses its configuration does not end the plugins that it queried.
		for _, pid := range pidsNaming(t, dir) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return a
}

func agentConfig(t *testing.T, dir string, ports []int, plugin, config string, args []string) []byte {
	t.Helper()
	if plugin == devicePlugin && !strings.Contains(config, "nvml_library") {
		library, err := fakenvml.Build(t.TempDir())
		must.NoError(t, err)
		config += fmt.Sprintf("\nnvml_library = %q", library)
	}
	if plugin == driverPlugin {
		config += fmt.Sprintf("\nendpoint = %q", shared.vars["DOCKER_HOST"])
	}
	if !strings.Contains(config, "table") {
		config += fmt.Sprintf("\ntable {\n store = \"file\"\n path = %q\n}", filepath.Join(dir, "table.json"))
	}
	return fmt.Appendf(nil, `
data_dir   = %q
plugin_dir = %q
bind_addr  = "127.0.0.1"
advertise {
  http = "127.0.0.1"
  rpc  = "127.0.0.1"
  serf = "127.0.0.1"
}
ports {
  http = %d
  rpc  = %d
  serf = %d
}
server {
  enabled          = true
  bootstrap_expect = 1
}
client {
  enabled           = true
  network_interface = "lo" # there may be no other
}
plugin %q {
  args = [%s]
  config {
    %s
  }
}`, filepath.Join(dir, "data"), filepath.Join(dir, "plugins"), ports[0], ports[1], ports[2], plugin, quoted(args), config)
}

// quoted are the elements of a list in HCL.
func quoted(texts []string) string {
	var list []string
	for _, text := range texts {
		list = append(list, strconv.Quote(text))
	}
	return strings.Join(list, ", ")
}

// freePorts returns ports of loopback that were free a moment ago.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		must.NoError(t, err)
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

func (a *agent) waitExit(t *testing.T) error {
	t.Helper()
	select {
	case err := <-a.exited:
		a.exited <- err
		return err
	case <-time.After(startTime):
		t.Fatalf("the agent does not refuse:\n%s", a.out)
		return nil
	}
}

func (a *agent) waitReady(t *testing.T) {
	t.Helper()
	client, err := api.NewClient(&api.Config{Address: a.address})
	must.NoError(t, err)
	eventually(t, startTime, "the agent is ready", func() error {
		nodes, _, err := client.Nodes().List(nil)
		if err == nil && (len(nodes) == 0 || nodes[0].Status != "ready") {
			err = fmt.Errorf("no ready node:\n%s", a.out)
		}
		return err
	})
}

// says reports whether a line of the output contains all texts.
func (a *agent) says(texts []string) error {
	for line := range strings.Lines(a.out.String()) {
		all := true
		for _, text := range texts {
			all = all && strings.Contains(line, text)
		}
		if all {
			return nil
		}
	}
	return fmt.Errorf("no such line:\n%s", a.out)
}

// lockedBuffer is a buffer for concurrent writers and readers.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
