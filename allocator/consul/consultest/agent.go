// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package consultest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/shoenig/test/must"
)

// readyTime is how long a server may take until it accepts writes.
const readyTime = time.Minute

// Agent is one Consul server.
type Agent struct {
	Address string // for Consul's clients
	Dir     string // its data and its log

	command []string
	process *exec.Cmd
}

// Settings are members of a server's configuration file. They override the defaults.
type Settings map[string]any

// ACL makes a server deny everything except with the management token.
func ACL(managementToken string) Settings {
	return Settings{"acl": map[string]any{
		"enabled": true, "default_policy": "deny",
		"tokens": map[string]string{"initial_management": managementToken},
	}}
}

// Start starts a server on loopback and stops it with the test. It returns before the server
// accepts writes: see Ready.
func Start(t testing.TB, settings ...Settings) *Agent {
	t.Helper()
	ports := freePorts(t, 3)
	config := Settings{
		"bootstrap_expect": 1, "bind_addr": "127.0.0.1", "client_addr": "127.0.0.1",
		"ports": map[string]int{
			"http": ports[0], "server": ports[1], "serf_lan": ports[2],
			"serf_wan": -1, "dns": -1, "grpc": -1, "grpc_tls": -1,
		},
	}
	a := &Agent{Address: net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0])), Dir: t.TempDir()}
	a.launch(t, append([]Settings{config}, settings...))
	return a
}

// StartTLS starts a server that serves HTTPS only and requires client certificates signed by
// the authority in caFile.
func StartTLS(t testing.TB, caFile, certFile, keyFile string) *Agent {
	t.Helper()
	port := freePorts(t, 1)[0]
	a := Start(t, Settings{
		"ports": map[string]int{
			"http": -1, "https": port, "server": freePorts(t, 1)[0], "serf_lan": freePorts(t, 1)[0],
			"serf_wan": -1, "dns": -1, "grpc": -1, "grpc_tls": -1,
		},
		"tls": map[string]any{"https": map[string]any{
			"ca_file": caFile, "cert_file": certFile, "key_file": keyFile, "verify_incoming": true,
		}},
	})
	a.Address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	return a
}

// launch writes the configuration and starts the server until the test ends.
func (a *Agent) launch(t testing.TB, settings []Settings) {
	t.Helper()
	config := Settings{
		"server": true, "data_dir": a.Dir, "disable_update_check": true,
		"performance": map[string]int{"raft_multiplier": 1},
	}
	for _, more := range settings {
		maps.Copy(config, more)
	}
	text, err := json.Marshal(config)
	must.NoError(t, err)
	file := filepath.Join(a.Dir, "agent.json")
	must.NoError(t, os.WriteFile(file, text, 0o600))
	binary := os.Getenv("CONSUL")
	must.NotEq(t, "", binary, must.Sprint("CONSUL must name a Consul binary; run `make test-table`"))
	a.command = append(a.command, binary, "agent", "-config-file="+file)
	must.NoError(t, a.Restart())
	t.Cleanup(a.Kill)
}

// Restart starts the server with its data again, after Kill.
func (a *Agent) Restart() error {
	log, err := os.OpenFile(filepath.Join(a.Dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	a.process = exec.Command(a.command[0], a.command[1:]...)
	a.process.Stdout, a.process.Stderr = log, log
	return a.process.Start()
}

// Kill ends the server with SIGKILL.
func (a *Agent) Kill() {
	_ = a.process.Process.Kill()
	_ = a.process.Wait()
}

// Freeze pauses the server with SIGSTOP, until Thaw.
func (a *Agent) Freeze() error { return a.process.Process.Signal(syscall.SIGSTOP) }

// Thaw resumes a frozen server.
func (a *Agent) Thaw() error { return a.process.Process.Signal(syscall.SIGCONT) }

// Ready waits until the server accepts writes, which is some time after it answers.
func (a *Agent) Ready(t testing.TB, token string) {
	t.Helper()
	client := a.Client(t, token)
	err := Eventually(t.Context(), readyTime, func(ctx context.Context) error {
		_, err := client.KV().Put(&api.KVPair{Key: "ready"}, (&api.WriteOptions{}).WithContext(ctx))
		return err
	})
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(a.Dir, "log"))
		t.Fatalf("Consul does not accept writes: %v\n%s", err, log)
	}
}

// Client returns a client of the server, independent of the store under test.
func (a *Agent) Client(t testing.TB, token string) *api.Client {
	t.Helper()
	config := api.DefaultConfig()
	config.Address, config.Token = a.Address, token
	client, err := api.NewClient(config)
	must.NoError(t, err)
	t.Cleanup(config.HttpClient.CloseIdleConnections)
	return client
}

// Eventually repeats check until it succeeds or the time is up. It returns the
// last error.
func Eventually(ctx context.Context, within time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", within, errors.Join(last))
		}
	}
}

// freePorts returns ports that were free a moment ago.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	ports := make([]int, n)
	for i := range ports {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		must.NoError(t, err)
		defer listener.Close()
		ports[i] = listener.Addr().(*net.TCPAddr).Port
	}
	return ports
}
