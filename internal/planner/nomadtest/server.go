// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/jobspec2"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/shoenig/test/must"
)

// Server is a Nomad behind its HTTP API.
type Server struct {
	*httptest.Server

	// OnRegister, if not nil, is called before a job is stored, to make a change at the
	// last moment.
	OnRegister func(*Nomad)

	// OnStore, if not nil, may change the stored job.
	OnStore func(job map[string]any)

	// Parse, if not nil, parses a job file in place of Nomad 1.6's parser, as an agent of
	// another version does.
	Parse func(api.JobsParseRequest) json.RawMessage

	// OnDeployment, if not nil, is called before a deployment is returned, with a copy of
	// it and how often it was returned: no task becomes healthy by itself.
	OnDeployment func(*Deployment, int)

	// Limit is the scheduler's node limit for jobs with affinities; 0 means that the
	// configuration has no such setting.
	Limit int

	mu      sync.Mutex
	queues  map[string]*queue
	refused map[string]int // status, by path
	nomad   *Nomad
	shown   int               // deployments
	stored  map[string]stored // by job
	unknown []string          // see Forget
	events  eventLog
}

// Deployment is one of Nomad's.
type Deployment = structs.Deployment

// Serve starts a server, which ends with the test.
func Serve(t testing.TB, nodes ...*structs.Node) *Server {
	s := &Server{nomad: New(t, nodes...), stored: map[string]stored{}, queues: map[string]*queue{}, refused: map[string]int{}, events: eventLog{more: make(chan struct{})}}
	s.Server = httptest.NewServer(s.routes())
	t.Cleanup(s.Close)
	return s
}

// Client returns a client of the server.
func (s *Server) Client(t testing.TB) *api.Client {
	client, err := api.NewClient(&api.Config{Address: s.URL})
	must.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// Do gives access to the Nomad behind the server.
func (s *Server) Do(do func(*Nomad)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do(s.nomad)
}

// Refuse makes requests to a path fail with this status.
func (s *Server) Refuse(path string, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused[path] = status
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/nodes", s.get(func(r *http.Request) any {
		stubs := []*structs.NodeListStub{}
		for _, n := range s.nomad.Nodes() {
			stubs = append(stubs, n.Stub(&structs.NodeStubFields{Resources: r.FormValue("resources") == "true"}))
		}
		return stubs
	}))
	mux.HandleFunc("GET /v1/node/{id}", s.get(func(r *http.Request) any {
		n, _ := s.nomad.State.NodeByID(nil, r.PathValue("id"))
		return orNothing(n)
	}))
	mux.HandleFunc("GET /v1/allocations", s.get(func(r *http.Request) any {
		all := []*structs.AllocListStub{}
		for _, alloc := range s.nomad.Allocs() {
			if filter := r.FormValue("filter"); filter == "" || filter == fmt.Sprintf("EvalID == %q", alloc.EvalID) {
				all = append(all, alloc)
			}
		}
		return all
	}))
	mux.HandleFunc("GET /v1/evaluation/{id}", s.get(func(r *http.Request) any {
		eval, _ := s.nomad.State.EvalByID(nil, r.PathValue("id"))
		return orNothing(eval)
	}))
	mux.HandleFunc("GET /v1/jobs", s.get(func(*http.Request) any { return s.jobs() }))
	mux.HandleFunc("GET /v1/job/{id}", s.get(func(r *http.Request) any { return s.job(r.PathValue("id")) }))
	mux.HandleFunc("GET /v1/job/{id}/submission", s.get(func(r *http.Request) any { return s.submission(r.PathValue("id"), r.FormValue("version")) }))
	mux.HandleFunc("GET /v1/deployment/{id}", s.get(func(r *http.Request) any {
		d, _ := s.nomad.State.DeploymentByID(nil, r.PathValue("id"))
		if d != nil && s.OnDeployment != nil {
			d = d.Copy()
			s.OnDeployment(d, s.shown)
		}
		s.shown++
		return orNothing(d)
	}))
	mux.HandleFunc("GET /v1/event/stream", s.events.serve)
	mux.HandleFunc("GET /v1/queue/jobs", s.get(s.queueJobs))
	mux.HandleFunc("GET /v1/operator/scheduler/configuration", s.get(s.schedulerConfig))
	mux.HandleFunc("PUT /v1/job/{id}/plan", s.plan)
	mux.HandleFunc("GET /v1/job/{id}/summary", s.get(func(r *http.Request) any {
		summary, _ := s.nomad.State.JobSummaryByID(nil, "default", r.PathValue("id"))
		return orNothing(summary)
	}))
	mux.HandleFunc("PUT /v1/jobs", s.register)
	mux.HandleFunc("PUT /v1/jobs/parse", s.parse)
	return mux
}

// get answers with the result of find, 404 if that is nil.
func (s *Server) get(find func(*http.Request) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if status := s.refused[r.URL.Path]; status != 0 {
			http.Error(w, http.StatusText(status), status)
			return
		}
		found := find(r)
		if found == nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("X-Nomad-Index", "1")
		_ = json.NewEncoder(w).Encode(found)
	}
}

// orNothing turns a nil pointer into a nil any.
func orNothing[T any](p *T) any {
	if p == nil {
		return nil
	}
	return p
}

func (s *Server) jobs() any {
	all, _ := s.nomad.State.Jobs(nil)
	stubs := []*api.JobListStub{}
	for raw := all.Next(); raw != nil; raw = all.Next() {
		job := raw.(*structs.Job)
		stubs = append(stubs, &api.JobListStub{ID: job.ID, Namespace: job.Namespace, Stop: job.Stop, ParentID: job.ParentID})
	}
	return stubs
}

func (s *Server) parse(w http.ResponseWriter, r *http.Request) {
	var request api.JobsParseRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if s.Parse != nil {
		_, _ = w.Write(s.Parse(request))
		return
	}
	job, err := jobspec2.ParseWithConfig(&jobspec2.ParseConfig{
		Path: "input.hcl", Body: []byte(request.JobHCL), VarContent: request.Variables,
	})
	if err != nil {
		http.Error(w, strings.TrimSpace(err.Error()), http.StatusBadRequest)
		return
	}
	if request.Canonicalize {
		job.Canonicalize()
	}
	_ = json.NewEncoder(w).Encode(job)
}
