// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/hashicorp/nomad/api"
)

// stored is a job as it was registered, including fields that Nomad 1.6 does not know.
type stored struct {
	job     map[string]any
	index   uint64 // JobModifyIndex; it differs if the job was changed since
	sources map[string]*api.JobSubmission
}

// jobRequest is a request to register a job, or to plan that.
type jobRequest struct {
	Job            map[string]any
	Submission     *api.JobSubmission
	EnforceIndex   bool
	JobModifyIndex uint64
	PreserveCounts bool
}

// Forget makes the agent drop fields of these names, as an older agent does, from answers
// and from requests to its servers. Jobs registered before stay stored in full.
func (s *Server) Forget(fields ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unknown = fields
}

// Stored returns a job's JSON as the servers have it.
func (s *Server) Stored(id string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, _ := json.Marshal(s.inFull(id))
	return text
}

// job returns a job as the agent has it, nil if there is none.
func (s *Server) job(id string) any {
	full := s.inFull(id)
	if full == nil {
		return nil
	}
	return without(full, s.unknown)
}

// inFull returns a job as it was registered, with the top-level fields that Nomad has
// added, nil if there is none.
func (s *Server) inFull(id string) map[string]any {
	job := s.nomad.Job(id)
	if job == nil {
		return nil
	}
	text, _ := json.Marshal(job)
	full := decode(text)
	if kept := s.stored[id]; kept.job != nil && kept.index == job.JobModifyIndex {
		for _, name := range []string{"Version", "JobModifyIndex", "ModifyIndex", "CreateIndex", "Status", "Stop"} {
			kept.job[name] = full[name]
		}
		for name, value := range kept.job {
			if value != nil {
				full[name] = value
			}
		}
	}
	return full
}

// register rejects a job with an outdated index, as Nomad does.
func (s *Server) register(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	request, job, err := s.receive(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if s.OnRegister != nil {
		s.OnRegister(s.nomad)
	}
	if s.OnStore != nil {
		s.OnStore(request.Job)
		text, _ := json.Marshal(request.Job)
		job = new(api.Job)
		_ = json.Unmarshal(text, job)
	}
	old := s.nomad.Job(*job.ID)
	var index uint64
	if old != nil {
		index = old.JobModifyIndex
	}
	if request.EnforceIndex && request.JobModifyIndex != index {
		http.Error(w, fmt.Sprintf("%s %d: job has %d", api.RegisterEnforceIndexErrPrefix, request.JobModifyIndex, index), http.StatusInternalServerError)
		return
	}
	if old != nil && request.PreserveCounts {
		for i, group := range job.TaskGroups {
			if had := old.LookupTaskGroup(*group.Name); had != nil {
				group.Count = &had.Count
				groups, _ := request.Job["TaskGroups"].([]any)
				groups[i].(map[string]any)["Count"] = had.Count
			}
		}
	}
	var response api.JobRegisterResponse
	if eval := s.evaluation(job); eval != nil {
		response.EvalID = eval.ID
		s.events.add(string(api.TopicEvaluation), "EvaluationUpdated", eval.ID, map[string]any{"Evaluation": eval})
	}
	now := s.nomad.Job(*job.ID)
	sources := s.stored[now.ID].sources
	if sources == nil {
		sources = map[string]*api.JobSubmission{}
	}
	sources[fmt.Sprint(now.Version)] = request.Submission
	s.stored[now.ID] = stored{job: request.Job, index: now.JobModifyIndex, sources: sources}
	s.events.add(string(api.TopicJob), "JobRegistered", now.ID, map[string]any{"Job": now})
	response.JobModifyIndex = now.JobModifyIndex
	_ = json.NewEncoder(w).Encode(response)
}

// receive reads a request, without the fields that the agent does not know.
func (s *Server) receive(r *http.Request) (*jobRequest, *api.Job, error) {
	var request jobRequest
	decoder := json.NewDecoder(r.Body)
	decoder.UseNumber()
	if err := decoder.Decode(&request); err != nil {
		return nil, nil, err
	}
	request.Job, _ = without(request.Job, s.unknown).(map[string]any)
	text, err := json.Marshal(request.Job)
	if err != nil {
		return nil, nil, err
	}
	var job api.Job
	err = json.Unmarshal(text, &job)
	return &request, &job, err
}

// plan answers what a request would change: by Nomad's own diff and, for fields that Nomad
// 1.6 does not know, by the names of missing fields.
func (s *Server) plan(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	request, job, err := s.receive(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	diff := s.nomad.Diff(job)
	for _, name := range missing(s.inFull(*job.ID), request.Job) {
		diff.Fields = append(diff.Fields, &api.FieldDiff{Type: "Deleted", Name: name})
	}
	_ = json.NewEncoder(w).Encode(&api.JobPlanResponse{Diff: diff, JobModifyIndex: s.nomad.Job(*job.ID).JobModifyIndex})
}

// submission returns the file of a version of a job, nil if there is none.
func (s *Server) submission(id, version string) any { return orNothing(s.stored[id].sources[version]) }

// missing returns the names of fields of old that now lacks, at any depth.
func missing(old, now any) []string {
	var names []string
	switch old := old.(type) {
	case map[string]any:
		other, _ := now.(map[string]any)
		for name, value := range old {
			if _, there := other[name]; !there {
				names = append(names, name)
			} else {
				names = append(names, missing(value, other[name])...)
			}
		}
	case []any:
		other, _ := now.([]any)
		for i := range min(len(old), len(other)) {
			names = append(names, missing(old[i], other[i])...)
		}
	}
	return names
}

// without copies JSON except for some fields.
func without(node any, fields []string) any {
	switch node := node.(type) {
	case map[string]any:
		copied := map[string]any{}
		for name, value := range node {
			if !slices.Contains(fields, name) {
				copied[name] = without(value, fields)
			}
		}
		return copied
	case []any:
		copied := make([]any, len(node))
		for i, value := range node {
			copied[i] = without(value, fields)
		}
		return copied
	default:
		return node
	}
}

func decode(text []byte) map[string]any {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var object map[string]any
	_ = decoder.Decode(&object)
	return object
}
