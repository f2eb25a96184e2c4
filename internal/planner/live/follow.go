// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package live

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/nomad/structs"

	"nomad-gpu-mem/internal/planner"
)

// patience is how long one blocking query for an evaluation waits for a change.
const patience = 30 * time.Second

// follow waits for the end of the report's evaluation, and records the result.
func (s *Site) follow(ctx context.Context, plan *planner.Plan, report *Report) error {
	eval, err := s.decided(ctx, plan, report)
	if err != nil || report.Queue != nil {
		return err
	}
	report.Status, report.Blocked, report.deployment = eval.Status, eval.BlockedEval, eval.DeploymentID
	report.Failures = failures(eval)
	started, err := s.started(ctx, plan, eval)
	if err != nil {
		return err
	}
	report.Outcomes = slices.DeleteFunc(report.Outcomes, func(o planner.Outcome) bool { return o.Alloc == "" })
	report.Outcomes = append(report.Outcomes, planner.Compare(plan, started)...)
	return nil
}

// decided returns the report's evaluation once it has ended. It does not wait for a job in
// a batch queue: it records the position there.
func (s *Site) decided(ctx context.Context, plan *planner.Plan, report *Report) (*api.Evaluation, error) {
	id, q := report.Evaluation, &api.QueryOptions{Namespace: plan.Space, WaitTime: patience}
	if plan.Queue != "" {
		q.WaitTime = queuePause
	}
	for {
		eval, meta, err := s.nomad.Evaluations().Info(id, q.WithContext(ctx))
		if err != nil {
			return nil, nomadFailed("read evaluation "+id, err)
		}
		if eval.Status != structs.EvalStatusPending {
			return eval, nil
		}
		if plan.Queue != "" && q.WaitIndex > 0 {
			if report.Queue, err = s.placeIn(ctx, plan.Job); report.Queue != nil || err != nil {
				report.Status = eval.Status
				return eval, err
			}
		}
		q.WaitIndex = meta.LastIndex
	}
}

// started returns the allocations that the evaluation made.
func (s *Site) started(ctx context.Context, plan *planner.Plan, eval *api.Evaluation) ([]*structs.AllocListStub, error) {
	var all []*structs.AllocListStub
	q := &api.QueryOptions{Namespace: plan.Space, Params: withResources, Filter: fmt.Sprintf("EvalID == %q", eval.ID)}
	if _, err := s.nomad.Raw().Query("/v1/allocations", &all, q.WithContext(ctx)); err != nil {
		return nil, nomadFailed("list the allocations of evaluation "+eval.ID, err)
	}
	return slices.DeleteFunc(all, func(alloc *structs.AllocListStub) bool {
		return alloc.CreateIndex <= eval.CreateIndex // it existed before, and was updated in place
	}), nil
}

// failures returns for each group that Nomad could not place the reasons.
func failures(eval *api.Evaluation) map[string]string {
	if len(eval.FailedTGAllocs) == 0 {
		return nil
	}
	found := map[string]string{}
	for group, metric := range eval.FailedTGAllocs {
		var reasons []string
		for _, part := range []map[string]int{metric.ConstraintFiltered, metric.DimensionExhausted} {
			for _, reason := range slices.Sorted(maps.Keys(part)) {
				reasons = append(reasons, fmt.Sprintf("%s on %d nodes", brief(reason), part[reason]))
			}
		}
		if len(reasons) == 0 {
			reasons = append(reasons, fmt.Sprintf("%d nodes evaluated, %d filtered, %d exhausted", metric.NodesEvaluated, metric.NodesFiltered, metric.NodesExhausted))
		}
		found[group] = strings.Join(reasons, ", ")
	}
	return found
}

// brief truncates a reason, which may contain a long list of nodes.
func brief(reason string) string {
	const most = 80
	if len(reason) > most {
		return reason[:most] + "…"
	}
	return reason
}
