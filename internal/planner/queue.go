// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner

import "github.com/hashicorp/nomad/api"

// MayQueue reports whether Nomad would put a job into the batch queue of its node pool, if
// the pool has one. The two pools that Nomad makes have none.
func MayQueue(job *api.Job) bool {
	pool := deref(job.NodePool)
	return deref(job.Type) == api.JobTypeBatch && pool != "" && pool != api.NodePoolDefault && pool != api.NodePoolAll && !isTemplate(job)
}

// queueNote is the note of a job that a batch queue holds back. By its turn the nodes of a
// list may be full, and a job that fits nowhere blocks all jobs behind it. A reservation
// would have expired by then.
const queueNote = "passes through the batch queue of its node pool: prefers the planned nodes and GPUs, is not confined to them, and nothing is reserved"
