//go:build services

package consul_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/consul"
)

// agent is a real Consul server of a test's own, on loopback.
type agent struct {
	address string
	dir     string
	process *exec.Cmd
}

// startAgent starts a server and ends it with the test. With a management token
// it denies everything to everyone else.
func startAgent(t *testing.T, managementToken string) *agent {
	t.Helper()
	dir := t.TempDir()
	ports := freePorts(t, 3)
	config := map[string]any{
		"server": true, "bootstrap_expect": 1, "data_dir": dir,
		"bind_addr": "127.0.0.1", "client_addr": "127.0.0.1",
		"ports": map[string]int{
			"http": ports[0], "server": ports[1], "serf_lan": ports[2],
			"serf_wan": -1, "dns": -1, "grpc": -1, "grpc_tls": -1,
		},
		"performance":          map[string]int{"raft_multiplier": 1},
		"disable_update_check": true,
	}
	if managementToken != "" {
		config["acl"] = map[string]any{
			"enabled": true, "default_policy": "deny",
			"tokens": map[string]string{"initial_management": managementToken},
		}
	}
	text, err := json.Marshal(config)
	must.NoError(t, err)
	must.NoError(t, os.WriteFile(filepath.Join(dir, "agent.json"), text, 0o600))
	a := &agent{address: net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0])), dir: dir}
	must.NoError(t, a.start())
	a.ready(t, managementToken)
	t.Cleanup(a.kill)
	return a
}

// start runs the agent with the data that it has.
func (a *agent) start() error {
	binary := os.Getenv("CONSUL")
	if binary == "" {
		return errors.New("CONSUL must name a Consul binary; run `make test-table`")
	}
	log, err := os.OpenFile(filepath.Join(a.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	a.process = exec.Command(binary, "agent", "-config-file="+filepath.Join(a.dir, "agent.json"))
	a.process.Stdout, a.process.Stderr = log, log
	return a.process.Start()
}

// kill ends the agent without a chance to say goodbye.
func (a *agent) kill() {
	_ = a.process.Process.Kill()
	_ = a.process.Wait()
}

// ready waits until the agent takes writes: it does so some time after it
// answers.
func (a *agent) ready(t *testing.T, token string) {
	t.Helper()
	client := a.client(t, token)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		_, err := client.KV().Put(&api.KVPair{Key: "ready"}, (&api.WriteOptions{}).WithContext(ctx))
		if err == nil {
			return
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			log, _ := os.ReadFile(filepath.Join(a.dir, "log"))
			t.Fatalf("Consul does not take writes: %v\n%s", err, log)
		}
	}
}

// client talks to the agent without the package under test.
func (a *agent) client(t *testing.T, token string) *api.Client {
	t.Helper()
	config := api.DefaultConfig()
	config.Address, config.Token = a.address, token
	client, err := api.NewClient(config)
	must.NoError(t, err)
	t.Cleanup(config.HttpClient.CloseIdleConnections)
	return client
}

func (a *agent) store(t testing.TB, token, prefix string) allocator.Store {
	t.Helper()
	store, err := consul.New(consul.Config{Address: a.address, Token: token, Prefix: prefix})
	must.NoError(t, err)
	t.Cleanup(func() { must.NoError(t, store.Close()) })
	return store
}

// freePorts returns ports that were free a moment ago.
func freePorts(t *testing.T, n int) []int {
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
