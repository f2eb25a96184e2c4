// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"net/http"
	"slices"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/nomad/structs"
)

// queue is the batch queue of a node pool, as in Nomad 2.1: it holds back the evaluations of
// jobs until Next.
type queue struct {
	kind  string
	waits []queued
}

type queued struct {
	job  *structs.Job
	eval *structs.Evaluation
}

// SetQueue gives a node pool a batch queue.
func (s *Server) SetQueue(pool, kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queues[pool] = &queue{kind: kind}
}

// Next evaluates the first job in the queue of a node pool.
func (s *Server) Next(pool string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	queue := s.queues[pool]
	first := queue.waits[0]
	queue.waits = queue.waits[1:]
	s.nomad.decide(first.job, first.eval)
}

// holdsBack returns the queue that a job passes through, nil if none.
func (s *Server) holdsBack(job *api.Job) *queue {
	if job.Type == nil || *job.Type != api.JobTypeBatch || job.NodePool == nil {
		return nil
	}
	return s.queues[*job.NodePool]
}

// evaluation stores a job and evaluates it, unless a queue holds it back.
func (s *Server) evaluation(job *api.Job) *structs.Evaluation {
	if queue := s.holdsBack(job); queue != nil {
		return queue.add(s.nomad, s.nomad.take(job))
	}
	return s.nomad.Register(job)
}

// add puts a job at the end, in place of an earlier version of it.
func (q *queue) add(n *Nomad, job *structs.Job) *structs.Evaluation {
	q.waits = slices.DeleteFunc(q.waits, func(w queued) bool { return w.job.ID == job.ID })
	eval := n.pend(job)
	q.waits = append(q.waits, queued{job: job, eval: eval})
	return eval
}

// queueJobs answers as Nomad 2.1 does; without a queue it answers 404, as older versions do.
func (s *Server) queueJobs(r *http.Request) any {
	type workload struct {
		JobID, Namespace, Status string
		Position                 int
	}
	answer := struct {
		Type      string
		Workloads []workload
	}{Type: "passthrough", Workloads: []workload{}}
	if len(s.queues) == 0 {
		return nil
	}
	queue := s.queues[r.FormValue("node_pool")]
	if queue == nil {
		return answer
	}
	answer.Type = queue.kind
	for i, w := range queue.waits {
		answer.Workloads = append(answer.Workloads, workload{JobID: w.job.ID, Namespace: w.job.Namespace, Status: "queued", Position: i + 1})
	}
	return answer
}

func (s *Server) schedulerConfig(*http.Request) any {
	config := map[string]any{"SchedulerAlgorithm": "binpack"}
	if s.Limit > 0 {
		config["NodeLimitForFeasibilityChecks"] = s.Limit
	}
	return map[string]any{"SchedulerConfig": config}
}
