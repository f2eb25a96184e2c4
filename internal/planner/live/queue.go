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

// Queued is the position of a job in the batch queue of its node pool.
type Queued struct {
	Pool     string `json:"node_pool"`
	Type     string `json:"type"`     // fifo, dynamic_priority, or one that a later Nomad adds
	Position int    `json:"position"` // 0 is the job that Nomad is placing
}

// batchQueue is the queue of a node pool, as Nomad 2.1 and newer report it.
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
	waiting = "queued" // not sent to the scheduler yet
)

// queueOf returns the batch queue that a job passes through; nil if there is none, if Nomad
// is too old for queues, or if the token may not read them.
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
		return nil, nomadFailed("read the batch queue of node pool "+*job.NodePool, err)
	}
	if queue.Type == "" || queue.Type == noQueue {
		return nil, nil
	}
	return &queue, nil
}

// placeIn returns the position of a job in the queue of its node pool; nil if it does not
// wait there.
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

// queuePause is how long Nomad may take to place a job of a batch queue before the queue is
// read.
const queuePause = 2 * time.Second

// nodeLimit returns how many nodes Nomad scores for a job with affinities; 0 if the token
// may not read the scheduler's configuration, or if Nomad is too old for the setting.
func (s *Site) nodeLimit(ctx context.Context) (int, error) {
	var answer struct {
		SchedulerConfig struct{ NodeLimitForFeasibilityChecks int }
	}
	_, err := s.nomad.Raw().Query("/v1/operator/scheduler/configuration", &answer, (&api.QueryOptions{}).WithContext(ctx))
	if notFound(err) || denied(err) {
		return 0, nil
	}
	return answer.SchedulerConfig.NodeLimitForFeasibilityChecks, nomadFailed("read the scheduler's configuration", err)
}

func denied(err error) bool {
	answer, ok := errors.AsType[api.UnexpectedResponseError](err)
	return ok && slices.Contains([]int{http.StatusForbidden, http.StatusUnauthorized}, answer.StatusCode())
}
