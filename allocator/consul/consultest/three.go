// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package consultest

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/shoenig/test/must"
)

// Three is a cluster of three servers in one private network namespace, each at an address
// of its loopback, so that a test can cut any traffic between them. Clients reach each
// server through a Unix socket, which no cut affects.
type Three struct {
	Servers   [3]*Agent
	namespace string
}

const (
	raftPort = 8300
	serfPort = 8301
)

func addressOf(server int) string { return fmt.Sprintf("127.0.0.%d", 11+server) }

// StartThree starts the cluster, waits until it accepts writes, and stops it with the test.
// It needs the privilege to create network namespaces.
func StartThree(t testing.TB) *Three {
	t.Helper()
	dir := t.TempDir()
	c := &Three{namespace: "gpu-mem-" + filepath.Base(filepath.Dir(dir))}
	run(t, "ip", "netns", "add", c.namespace)
	t.Cleanup(func() { run(t, "ip", "netns", "delete", c.namespace) })
	c.inside(t, "ip", "link", "set", "lo", "up")
	var peers []string
	for server := range c.Servers {
		peers = append(peers, fmt.Sprintf("%s:%d", addressOf(server), serfPort))
	}
	for server := range c.Servers {
		c.Servers[server] = c.launch(t, server, peers)
	}
	for _, server := range c.Servers {
		server.Ready(t, "")
	}
	return c
}

func (c *Three) launch(t testing.TB, server int, peers []string) *Agent {
	dir := t.TempDir()
	socket := "unix://" + filepath.Join(dir, "http")
	a := &Agent{Address: socket, Dir: dir, command: []string{"ip", "netns", "exec", c.namespace}}
	a.launch(t, []Settings{{
		"bootstrap_expect": len(c.Servers), "node_name": fmt.Sprintf("server-%d", server),
		"bind_addr": addressOf(server), "retry_join": peers, "retry_interval": "1s",
		// A server that is unavailable for a moment stays a voter. Otherwise the loss of
		// the next one would lose the majority.
		"autopilot": map[string]any{"cleanup_dead_servers": false},
		"addresses": map[string]string{"http": socket},
		"ports": map[string]int{
			"server": raftPort, "serf_lan": serfPort, "serf_wan": -1, "dns": -1, "grpc": -1, "grpc_tls": -1,
		},
	}})
	return a
}

// Leader returns the number of the server that a majority follows.
func (c *Three) Leader(t testing.TB) (leader int) {
	t.Helper()
	must.NoError(t, Eventually(t.Context(), readyTime, func(ctx context.Context) error {
		votes := map[string]int{}
		for _, server := range c.Servers {
			address, err := server.Client(t, "").Status().LeaderWithQueryOptions((&api.QueryOptions{}).WithContext(ctx))
			if err == nil {
				votes[address]++
			}
		}
		for number := range c.Servers {
			if votes[fmt.Sprintf("%s:%d", addressOf(number), raftPort)] >= 2 {
				leader = number
				return nil
			}
		}
		return errors.New("no leader")
	}))
	return leader
}

// Isolate drops all traffic between a server and the others.
func (c *Three) Isolate(t testing.TB, server int) {
	t.Helper()
	address := addressOf(server)
	c.inside(t, "iptables", "-w", "-A", "INPUT", "-s", address, "!", "-d", address, "-j", "DROP")
	c.inside(t, "iptables", "-w", "-A", "INPUT", "-d", address, "!", "-s", address, "-j", "DROP")
}

// Heal lets all traffic pass again.
func (c *Three) Heal(t testing.TB) {
	t.Helper()
	c.inside(t, "iptables", "-w", "-F", "INPUT")
}

func (c *Three) inside(t testing.TB, command ...string) {
	t.Helper()
	run(t, append([]string{"ip", "netns", "exec", c.namespace}, command...)...)
}

func run(t testing.TB, command ...string) {
	t.Helper()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	must.NoError(t, err, must.Sprintf("%s: %s", strings.Join(command, " "), out))
}
