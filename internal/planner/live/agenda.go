// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package live

import (
	"maps"
	"sync"

	"github.com/hashicorp/nomad/api"
)

// jobKey names a job.
type jobKey struct{ space, id string }

func keyOf(stub *api.JobListStub) jobKey { return jobKey{space: stub.Namespace, id: stub.ID} }

// work is the set of jobs to check.
type work struct {
	all  bool
	jobs map[jobKey]bool
}

func (w work) has(job jobKey) bool { return w.all || w.jobs[job] }

// agenda is a queue that merges work until it is taken.
type agenda struct {
	news chan struct{} // has an entry if there is work

	mu   sync.Mutex
	work work
}

// only is the work of checking one job.
func only(space, id string) work { return work{jobs: map[jobKey]bool{{space: space, id: id}: true}} }

func newAgenda() *agenda {
	return &agenda{news: make(chan struct{}, 1), work: work{jobs: map[jobKey]bool{}}}
}

// add never blocks.
func (a *agenda) add(more work) {
	a.mu.Lock()
	a.work.all = a.work.all || more.all
	maps.Copy(a.work.jobs, more.jobs)
	a.mu.Unlock()
	select {
	case a.news <- struct{}{}:
	default: // there was work already
	}
}

func (a *agenda) take() work {
	a.mu.Lock()
	defer a.mu.Unlock()
	taken := a.work
	a.work = work{jobs: map[jobKey]bool{}}
	return taken
}
