// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package webhook_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"
	"go.uber.org/goleak"

	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/planner/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stub plans every job in the same way.
type stub struct {
	err   error
	block bool // until the request's time is over
}

func (s stub) Reserve(ctx context.Context, document *planner.Document, _ planner.Options) (*planner.Plan, error) {
	job := document.Job
	if s.block {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if s.err != nil {
		return nil, s.err
	}
	if !planner.HasAsks(job) {
		return &planner.Plan{Job: job}, nil
	}
	var planned api.Job
	data, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &planned); err != nil {
		return nil, err
	}
	group := planned.TaskGroups[0]
	group.Constrain(api.NewConstraint("${node.unique.id}", "set_contains_any", "a,b"))
	group.Meta = map[string]string{planner.MetaPlanned: "shortlist"}
	group.Tasks[0].Resources.Devices[0].Affinities = []*api.Affinity{api.NewAffinity("${device.model}", "=", "GPU-1", 100)}
	return &planner.Plan{Job: &planned, Groups: []planner.Group{{
		Name: "g", Short: []planner.Shortage{{Instances: 2, Why: []string{"3 units short"}}},
	}}}, nil
}

// job has a field of a newer Nomad.
const job = `{"ID": "web", "Name": "web", "FromTheFuture": {"a": [1, 2]}, "TaskGroups": [{"Name": "g", "Constraints": null,
  "Tasks": [{"Name": "t", "Driver": "gpu-docker", "Resources": {"CPU": 100, "NUMA": {"Affinity": "none"},
    "Devices": [{"Name": "nvidia/gpu-mem", "Count": 4}]}}]}]}`

const plain = `{"ID": "plain", "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Resources": {"CPU": 100}}]}]}`

func start(t *testing.T, s stub, change func(*webhook.Config)) *httptest.Server {
	t.Helper()
	config := webhook.Config{Timeout: time.Minute, MaxBody: 1 << 20}
	if change != nil {
		change(&config)
	}
	server := httptest.NewServer(webhook.New(hclog.NewNullLogger(), s, config))
	t.Cleanup(server.Close)
	t.Cleanup(server.Client().CloseIdleConnections)
	return server
}

func post(t *testing.T, server *httptest.Server, path, body string, headers ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, strings.NewReader(body))
	must.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := server.Client().Do(r)
	must.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must.NoError(t, err)
	return response.StatusCode, string(text)
}

// review is what a proxy reads.
type review struct {
	Patch    json.RawMessage
	Warnings []string
	Errors   []string
}

func patchOf(t *testing.T, server *httptest.Server, body string) review {
	t.Helper()
	code, text := post(t, server, "/v1/patch", body)
	must.Eq(t, http.StatusOK, code, must.Sprint(text))
	var r review
	must.NoError(t, json.Unmarshal([]byte(text), &r))
	return r
}

// Both contracts return the same job, and keep unknown fields.
func TestBothContracts(t *testing.T) {
	t.Parallel()
	server := start(t, stub{}, nil)
	for name, body := range map[string]string{"bare": job, "wrapped": `{"Job": ` + job + `}`, "with context": `{"job": ` + job + `, "context": {"clientIP": "192.0.2.7"}}`} {
		t.Run(name, func(t *testing.T) {
			r := patchOf(t, server, body)
			must.SliceEmpty(t, r.Errors)
			must.SliceLen(t, 1, r.Warnings)
			must.StrContains(t, r.Warnings[0], "3 units short")
			patch, err := jsonpatch.DecodePatch(r.Patch)
			must.NoError(t, err)
			patched, err := patch.Apply([]byte(job))
			must.NoError(t, err)

			code, mutated := post(t, server, "/v1/mutate", body)
			must.Eq(t, http.StatusOK, code)
			must.EqJSON(t, string(patched), mutated)
			for _, part := range []string{"FromTheFuture", "NUMA", `"a,b"`, "GPU-1", "gpu_mem_planned"} {
				must.StrContains(t, mutated, part)
			}
		})
	}
}

func TestJobWithoutAsks(t *testing.T) {
	t.Parallel()
	server := start(t, stub{}, nil)
	must.EqJSON(t, `[]`, string(patchOf(t, server, plain).Patch))
	_, mutated := post(t, server, "/v1/mutate", plain)
	must.EqJSON(t, plain, mutated)
}

// A failure gives a warning with the unchanged job, or an error.
func TestFailures(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]stub{"table": {err: errors.New("the table is unavailable")}, "time": {block: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lenient := start(t, s, func(c *webhook.Config) { c.Timeout = 50 * time.Millisecond })
			r := patchOf(t, lenient, job)
			must.EqJSON(t, `[]`, string(r.Patch))
			must.SliceEmpty(t, r.Errors)
			must.StrContains(t, r.Warnings[0], "not planned")
			code, mutated := post(t, lenient, "/v1/mutate", job)
			must.Eq(t, http.StatusOK, code)
			must.EqJSON(t, job, mutated)

			strict := start(t, s, func(c *webhook.Config) { c.Strict, c.Timeout = true, 50*time.Millisecond })
			r = patchOf(t, strict, job)
			must.EqJSON(t, `[]`, string(r.Patch))
			must.StrContains(t, r.Errors[0], "cannot plan GPU memory")
			code, _ = post(t, strict, "/v1/mutate", job)
			must.Eq(t, http.StatusUnprocessableEntity, code)
		})
	}
}

// A patch names fields as the job spells them: Nomad takes any case. A job with two
// spellings of one name passes unchanged.
func TestOtherSpelling(t *testing.T) {
	t.Parallel()
	server := start(t, stub{}, nil)
	spelled := strings.NewReplacer("TaskGroups", "taskgroups", "Constraints", "constraints").Replace(job)
	patch, err := jsonpatch.DecodePatch(patchOf(t, server, spelled).Patch)
	must.NoError(t, err)
	patched, err := patch.Apply([]byte(spelled))
	must.NoError(t, err)
	must.StrContains(t, string(patched), `"constraints":[{`)
	_, mutated := post(t, server, "/v1/mutate", spelled)
	must.EqJSON(t, string(patched), mutated)

	twice := strings.Replace(job, `"TaskGroups"`, `"taskgroups": [], "TaskGroups"`, 1)
	r := patchOf(t, server, twice)
	must.EqJSON(t, `[]`, string(r.Patch))
	must.StrContains(t, r.Warnings[0], "two spellings")
	_, mutated = post(t, server, "/v1/mutate", twice)
	must.EqJSON(t, twice, mutated)
}

func TestToken(t *testing.T) {
	t.Parallel()
	server := start(t, stub{}, func(c *webhook.Config) { c.Token = "secret" })
	for header, want := range map[string]int{
		"":                         http.StatusUnauthorized,
		"Bearer wrong":             http.StatusUnauthorized,
		"Bearer secret":            http.StatusOK,
		"Basic bm9tYWQ6c2VjcmV0":   http.StatusOK, // nomad:secret
		"Basic bm9tYWQ6c2VjcmV0cw": http.StatusUnauthorized,
	} {
		code, _ := post(t, server, "/v1/patch", job, "Authorization", header)
		must.Eq(t, want, code, must.Sprint(header))
	}
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	server := start(t, stub{}, func(c *webhook.Config) { c.MaxBody = 2000 })
	for body, want := range map[string]int{
		"":                                  http.StatusBadRequest,
		"{":                                 http.StatusBadRequest,
		"[]":                                http.StatusBadRequest,
		"{}":                                http.StatusBadRequest,
		`{"ID": 7}`:                         http.StatusBadRequest,
		`{"ID": ""}`:                        http.StatusBadRequest,
		`{"ID": "x", "TaskGroups": [null]}`: http.StatusBadRequest,
		`{"Job": {"ID": "x", "TaskGroups": [{"Tasks": [null]}]}}`:                      http.StatusBadRequest,
		`{"ID": "x", "TaskGroups": [{"Tasks": [{"Resources": {"Devices": [null]}}]}]}`: http.StatusBadRequest,
		`{"ID": "x", "Constraints": [null]}`:                                           http.StatusBadRequest,
		`{"ID": "x", "TaskGroups": [{"Affinities": [null]}]}`:                          http.StatusBadRequest,
		`{"ID": "x", "TaskGroups": [{"Services": [{"Checks": [{}]}, null]}]}`:          http.StatusBadRequest,
		`{"ID": "x", "TaskGroups": [{"Volumes": {"v": null}}]}`:                        http.StatusBadRequest,
		`{"ID": "x", "Multiregion": {"Regions": [null]}}`:                              http.StatusBadRequest,
		strings.Repeat(" ", 3000):                                                      http.StatusRequestEntityTooLarge,
	} {
		code, _ := post(t, server, "/v1/patch", body)
		must.Eq(t, want, code, must.Sprintf("%.20q", body))
	}
	response, err := server.Client().Get(server.URL + "/v1/patch")
	must.NoError(t, err)
	must.NoError(t, response.Body.Close())
	must.Eq(t, http.StatusMethodNotAllowed, response.StatusCode)
}

// When the server stops, a request in progress still gets its answer.
func TestServeEndsGracefully(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	entered, leave := make(chan struct{}), make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-leave
		_, _ = w.Write([]byte("done"))
	})
	ended := make(chan error, 1)
	go func() { ended <- webhook.Serve(ctx, listener, handler, time.Minute, nil) }()
	answer := make(chan string, 1)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	go func() {
		response, err := client.Get("http://" + listener.Addr().String())
		if err != nil {
			answer <- err.Error()
			return
		}
		defer response.Body.Close()
		var text bytes.Buffer
		_, _ = text.ReadFrom(response.Body)
		answer <- text.String()
	}()
	<-entered
	stop()
	close(leave)
	must.Eq(t, "done", <-answer)
	must.NoError(t, <-ended)
}

func TestServeTLS(t *testing.T) {
	t.Parallel()
	donor := httptest.NewTLSServer(http.NotFoundHandler()) // has a certificate for 127.0.0.1
	defer donor.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	handler := webhook.New(hclog.NewNullLogger(), stub{}, webhook.Config{Timeout: time.Minute, MaxBody: 1 << 20})
	ended := make(chan error, 1)
	certificates := &tls.Config{Certificates: donor.TLS.Certificates, MinVersion: tls.VersionTLS12}
	go func() { ended <- webhook.Serve(ctx, listener, handler, time.Minute, certificates) }()

	client := donor.Client()
	response, err := client.Get("https://" + listener.Addr().String() + "/healthz")
	must.NoError(t, err)
	must.NoError(t, response.Body.Close())
	must.Eq(t, http.StatusOK, response.StatusCode)
	client.CloseIdleConnections()
	stop()
	must.NoError(t, <-ended)
}
