// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package live

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"nomad-gpu-mem/internal/planner"
)

// Queued is where a job waits that the batch queue of its node pool holds back.
type Queued struct {
	Pool     string `json:"node_pool"`
	Type     string `json:"type"`     // fifo, dynamic_priority, or what a later Nomad has
	Position int    `json:"position"` // at 0 is the job that Nomad is placing
}

// batchQueue is the answer of Nomad 2.1 and newer on the queue of a node pool.
type batchQueue struct {
	Type      string
	Workloads []struct {
		JobID, Namespace, Status string
		Position                 int
	}
}

// Values in a batchQueue.
const (
	noQueue = "passthrough"
	waiting = "queued" // and not sent to the scheduler yet
)

// queueOf returns the batch queue that a job goes through; nil if it goes through none, if
// Nomad is too old for queues, or if the token may not see them.
func (s *Site) queueOf(ctx context.Context, job *api.Job) (*batchQueue, error) {
	if !planner.MayQueue(job) {
		return nil, nil
	}
	var queue batchQueue
	q := &api.QueryOptions{Namespace: namespace(job), Params: map[string]string{"node_pool": *job.NodePool}}
	if _, err := s.nomad.Raw().Query("/v1/queue/jobs", &queue, q.WithContext(ctx)); err != nil {
		if notFound(err) || denied(err) {
			return nil, nil
		}
		return nil, asked("read the batch queue of node pool "+*job.NodePool, err)
	}
	if queue.Type == "" || queue.Type == noQueue {
		return nil, nil
	}
	return &queue, nil
}

// placeIn returns where a job waits in the queue of its node pool; nil if it does not wait
// there.
func (s *Site) placeIn(ctx context.Context, job *api.Job) (*Queued, error) {
	queue, err := s.queueOf(ctx, job)
	if queue == nil || err != nil {
		return nil, err
	}
	for _, w := range queue.Workloads {
		if w.JobID == *job.ID && w.Namespace == namespace(job) && w.Status == waiting {
			return &Queued{Pool: *job.NodePool, Type: queue.Type, Position: w.Position}, nil
		}
	}
	return nil, nil
}

// queuePause is how long Nomad has to decide on a job that goes through a queue before the
// queue is asked for it.
const queuePause = 2 * time.Second

// nodeLimit is how many nodes Nomad looks at for a job with affinities; 0 if the token may
// not read the scheduler's configuration, or if Nomad is too old to have the setting.
func (s *Site) nodeLimit(ctx context.Context) (int, error) {
	var answer struct {
		SchedulerConfig struct{ NodeLimitForFeasibilityChecks int }
	}
	_, err := s.nomad.Raw().Query("/v1/operator/scheduler/configuration", &answer, (&api.QueryOptions{}).WithContext(ctx))
	if notFound(err) || denied(err) {
		return 0, nil
	}
	return answer.SchedulerConfig.NodeLimitForFeasibilityChecks, asked("read the scheduler's configuration", err)
}

func denied(err error) bool {
	answer, ok := errors.AsType[api.UnexpectedResponseError](err)
	return ok && slices.Contains([]int{http.StatusForbidden, http.StatusUnauthorized}, answer.StatusCode())
}
