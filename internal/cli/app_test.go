// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/status"
	"nomad-gpu-mem/internal/tableconfig"
	"nomad-gpu-mem/internal/version"
)

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"--help"}, {"help"}} {
		code, stdout, stderr := newWorld().run(t, args...)
		must.Eq(t, ExitOK, code)
		must.Eq(t, "", stderr)
		for _, part := range []string{"status", "version", "Examples:", "Exit codes:", "GPU_MEM_TABLE_ADDRESS", "127.0.0.1:8500"} {
			must.StrContains(t, stdout, part)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "token")
	must.NoError(t, os.WriteFile(empty, []byte("\n"), 0o600))
	tests := []struct {
		args []string
		env  map[string]string
		want string
	}{
		{args: []string{"stauts"}, want: `unknown command "stauts"`},
		{args: []string{"status", "gpu-node-1"}, want: "takes no argument"},
		{args: []string{"status", "--nodes=x"}, want: "unknown flag: --nodes"},
		{args: []string{"status", "--table-store=etcd"}, want: `"etcd"`},
		{args: []string{"status", "--table-store=file", "--table-path=table.json"}, want: "absolute path"},
		{args: []string{"status", "--table-token-file=/nowhere/token"}, want: "/nowhere/token"},
		{args: []string{"status", "--table-token-file=" + empty}, want: "is empty"},
		{args: []string{"doctor", "--yes"}, want: "--fix"},
		{args: []string{"status"}, env: map[string]string{"GPU_MEM_TABLE_PREFIX": "/gpu-mem/"}, want: "/gpu-mem/"},
	}
	for _, tc := range tests {
		t.Run(tc.want, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			w.env = tc.env
			code, stdout, stderr := w.run(t, tc.args...)
			must.Eq(t, ExitUsage, code)
			must.Eq(t, "", stdout)
			must.StrContains(t, stderr, tc.want)
		})
	}
}

// Each error says what was tried, where, and what to do.
func TestTableErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		args []string
		err  error
		want []string
	}{
		{
			name: "unreachable", err: fmt.Errorf("dial tcp: connection refused: %w", allocator.ErrUnavailable),
			want: []string{"connection refused", "CONSUL_HTTP_ADDR"},
		},
		{
			name: "denied", err: fmt.Errorf("status 403: %w", allocator.ErrDenied), args: []string{"--table-prefix=team/gpu"},
			want: []string{"status 403", `key_prefix "team/gpu/"`, "--table-token-file"},
		},
		{
			name: "missing file", args: []string{"--table-store=file", "--table-path=/nowhere/table.json"},
			want: []string{"/nowhere/table.json", "--table-path"},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			w.Fail(tc.err)
			code, stdout, stderr := w.run(t, append([]string{"status"}, tc.args...)...)
			must.Eq(t, ExitTable, code)
			must.Eq(t, "", stdout)
			for _, part := range tc.want {
				must.StrContains(t, stderr, part)
			}
		})
	}
}

func TestTableConfiguration(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	must.NoError(t, os.WriteFile(token, []byte("secret\n"), 0o600))
	environment := map[string]string{
		"GPU_MEM_TABLE_ADDRESS":    "consul.example:8500",
		"GPU_MEM_TABLE_PREFIX":     "team/gpu",
		"GPU_MEM_TABLE_TOKEN_FILE": token,
	}
	fromEnvironment := tableconfig.Default()
	fromEnvironment.Address, fromEnvironment.Prefix, fromEnvironment.TokenFile = "consul.example:8500", "team/gpu", token
	fromFlags := fromEnvironment
	fromFlags.Address = "127.0.0.2:8500"
	tests := []struct {
		name string
		env  map[string]string
		args []string
		want tableconfig.Config
	}{
		{name: "defaults", want: tableconfig.Default()},
		{name: "environment", env: environment, want: fromEnvironment},
		{name: "flags outrank it", env: environment, args: []string{"--table-address=127.0.0.2:8500"}, want: fromFlags},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			w.env = tc.env
			app := w.app()
			var got tableconfig.Config
			app.OpenTable = func(config tableconfig.Config) (*allocator.Table, error) {
				got = config
				return allocator.NewTable(w), nil
			}
			var out bytes.Buffer
			must.Eq(t, ExitOK, app.Run(t.Context(), append([]string{"status"}, tc.args...), &out, &out))
			must.Eq(t, tc.want, got)
			must.StrNotContains(t, out.String(), "secret")
		})
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	code, stdout, _ := newWorld().run(t, "version")
	must.Eq(t, ExitOK, code)
	must.StrContains(t, stdout, "nomad-gpu-mem "+version.Version+" (go")

	code, stdout, _ = newWorld().run(t, "version", "--json")
	must.Eq(t, ExitOK, code)
	var got build
	must.NoError(t, json.Unmarshal([]byte(stdout), &got))
	must.Eq(t, version.Version, got.Version)
	must.StrHasPrefix(t, "go", got.Go)
}

// status names what it looks at: an operator's shell may point elsewhere than the
// plugins do.
func TestStatusNamesTheTable(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		env  map[string]string
		args []string
		want string
	}{
		{nil, nil, "Consul 127.0.0.1:8500, prefix gpu-mem"},
		{map[string]string{"CONSUL_NAMESPACE": "team-a", "CONSUL_PARTITION": "gpus"}, nil,
			"Consul 127.0.0.1:8500, prefix gpu-mem, namespace team-a, partition gpus"},
		{map[string]string{"CONSUL_NAMESPACE": "team-a", "GPU_MEM_TABLE_DATACENTER": "dc2"}, []string{"--table-namespace=team-b"},
			"Consul 127.0.0.1:8500, prefix gpu-mem, namespace team-b, datacenter dc2"},
	} {
		w := newWorld()
		w.env = tc.env
		code, stdout, _ := w.run(t, append([]string{"status", "--json"}, tc.args...)...)
		must.Eq(t, ExitOK, code)
		var report status.Report
		must.NoError(t, json.Unmarshal([]byte(stdout), &report))
		must.Eq(t, tc.want, report.Table)
	}
}
