// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner

import "github.com/hashicorp/nomad/api"

// MayQueue reports whether Nomad would put a job into the batch queue of its node pool, if
// the pool has one. The two pools that Nomad makes have none.
func MayQueue(job *api.Job) bool {
	pool := text(job.NodePool)
	return text(job.Type) == api.JobTypeBatch && pool != "" && pool != api.NodePoolDefault && pool != api.NodePoolAll && !isTemplate(job)
}

// queueNote is on a job that a batch queue holds back. A list of nodes is full when the
// job's turn comes, for all that is known, and a job that fits nowhere holds up all jobs
// behind it. A reservation would have ended by then.
const queueNote = "goes through the batch queue of its node pool: prefers the planned nodes and GPUs and is confined to none, and nothing is reserved"
