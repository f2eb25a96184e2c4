// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/planner/nomadtest"
)

// queuedJob is webJob as a batch job of a node pool.
var queuedJob = strings.Replace(webJob, `job "web" {`, "job \"web\" {\n  type = \"batch\"\n  node_pool = \"batch\"", 1)

// run reports that a batch queue holds a job back, and ends.
func TestRunOfAQueuedJob(t *testing.T) {
	t.Parallel()
	w, nomad := planned(t)
	nodes := nomadtest.Nodes(2, nomadtest.GPU{Model: "NVIDIA A10", Units: 22, UnitMiB: 1024})
	nomad.Do(func(n *nomadtest.Nomad) {
		for _, node := range nodes {
			node.NodePool = "batch"
			n.SetNode(node)
		}
	})
	nomad.SetQueue("batch", "fifo")
	code, stdout, stderr := w.run(t, "run", "--var=replicas=1", writeJob(t, queuedJob))
	must.Eq(t, ExitOK, code, must.Sprint(stderr))
	must.StrContains(t, stdout, "Queued: position 1 in the batch queue (fifo) of node pool batch.")
	must.StrContains(t, stdout, "nothing is reserved")
	code, stdout, _ = w.run(t, "run", "--json", "--var=replicas=1", writeJob(t, queuedJob))
	must.Eq(t, ExitOK, code)
	must.StrContains(t, stdout, `"node_pool": "batch"`)
	code, stdout, _ = w.run(t, "replan")
	must.Eq(t, ExitOK, code)
	must.StrContains(t, stdout, "No planned job runs or waits")
}

// Nomad 1.11 refuses a sysbatch or system job with a reschedule block, and the commands add
// none.
func TestNoRescheduleBlockIsAdded(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sysbatch", "system"} {
		w, nomad := planned(t)
		var policies []any
		nomad.OnStore = func(job map[string]any) {
			policies = append(policies, job["TaskGroups"].([]any)[0].(map[string]any)["ReschedulePolicy"])
		}
		text := strings.Replace(webJob, `job "web" {`, `job "web" {`+"\n  type = \""+kind+"\"", 1)
		code, _, stderr := w.run(t, "run", "--var=replicas=1", writeJob(t, text))
		must.Eq(t, ExitOK, code, must.Sprint(stderr))
		must.Eq(t, []any{nil}, policies, must.Sprint(kind))
	}
}

// A planner that runs as a Nomad task uses the socket that Nomad gives it, by either form of
// its address. Without a token it does not: the socket requires one.
func TestNomadByTheTaskSocket(t *testing.T) {
	t.Parallel()
	w, nomad := planned(t)
	socket := filepath.Join(t.TempDir(), "api.sock")
	listener, err := net.Listen("unix", socket)
	must.NoError(t, err)
	server := &http.Server{Handler: nomad.Config.Handler, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		must.NoError(t, server.Close())
		must.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	for _, c := range []struct {
		name string
		env  map[string]string
		args []string
		want int
	}{
		{"as Nomad has it", map[string]string{"NOMAD_UNIX_ADDR": "unix://" + socket, "NOMAD_TOKEN": "jwt"}, nil, ExitOK},
		{"as a path", map[string]string{"NOMAD_UNIX_ADDR": socket, "NOMAD_TOKEN": "jwt"}, nil, ExitOK},
		{"as Nomad's address", map[string]string{"NOMAD_ADDR": "unix://" + socket}, nil, ExitOK},
		{"by the flag", map[string]string{"NOMAD_ADDR": "http://127.0.0.1:1"}, []string{"--nomad-address=unix://" + socket}, ExitOK},
		{"NOMAD_ADDR counts more", map[string]string{"NOMAD_ADDR": "http://127.0.0.1:1", "NOMAD_UNIX_ADDR": socket, "NOMAD_TOKEN": "jwt"}, nil, ExitFailure},
	} {
		w.env = c.env
		code, _, stderr := w.run(t, append([]string{"plan", "--var=replicas=1", writeJob(t, webJob)}, c.args...)...)
		must.Eq(t, c.want, code, must.Sprint(c.name, stderr))
	}
	flags := nomadFlags{getenv: func(key string) string { return map[string]string{"NOMAD_UNIX_ADDR": socket}[key] }}
	must.Eq(t, "", flags.fromEnvironment())
}
