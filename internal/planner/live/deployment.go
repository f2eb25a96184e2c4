// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package live

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/nomad/structs"
)

// Deployment is the state of a service's deployment.
type Deployment struct {
	ID          string            `json:"id"`
	Status      string            `json:"status"` // running, paused, ..., and finally successful, failed or cancelled
	Description string            `json:"description"`
	Groups      []DeploymentGroup `json:"groups"` // by name
}

// DeploymentGroup counts the instances of one group.
type DeploymentGroup struct {
	Group     string `json:"group"`
	Desired   int    `json:"desired"`
	Placed    int    `json:"placed"`
	Healthy   int    `json:"healthy"`
	Unhealthy int    `json:"unhealthy"`
}

// Ended reports whether the deployment has ended.
func (d Deployment) Ended() bool {
	return slices.Contains([]string{structs.DeploymentStatusSuccessful, structs.DeploymentStatusFailed, structs.DeploymentStatusCancelled}, d.Status)
}

// Successful reports whether all instances are healthy.
func (d Deployment) Successful() bool { return d.Status == structs.DeploymentStatusSuccessful }

// followDeployment waits until the report's deployment has ended. It also waits for a
// promotion.
func (s *Site) followDeployment(ctx context.Context, report *Report, progress func(Deployment)) error {
	q := &api.QueryOptions{Namespace: report.Plan.Space, WaitTime: patience}
	for {
		found, meta, err := s.nomad.Deployments().Info(report.deployment, q.WithContext(ctx))
		if err != nil {
			return nomadFailed("read deployment "+report.deployment, err)
		}
		now := deploymentOf(found)
		if report.Deployment == nil || fmt.Sprint(*report.Deployment) != fmt.Sprint(now) {
			report.Deployment = &now
			if progress != nil {
				progress(now)
			}
		}
		if now.Ended() {
			return nil
		}
		q.WaitIndex = meta.LastIndex
	}
}

func deploymentOf(d *api.Deployment) Deployment {
	now := Deployment{ID: d.ID, Status: d.Status, Description: d.StatusDescription, Groups: []DeploymentGroup{}}
	for _, name := range slices.Sorted(maps.Keys(d.TaskGroups)) {
		state := d.TaskGroups[name]
		now.Groups = append(now.Groups, DeploymentGroup{
			Group: name, Desired: state.DesiredTotal, Placed: state.PlacedAllocs, Healthy: state.HealthyAllocs, Unhealthy: state.UnhealthyAllocs,
		})
	}
	return now
}
