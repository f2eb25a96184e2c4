// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package live

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/nomad/api"
	"golang.org/x/sync/errgroup"

	"nomad-gpu-mem/internal/pause"
	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/tellonce"
)

// Watching is the configuration of Watch.
type Watching struct {
	Space     string   // Nomad's namespace; * is all
	Only      []string // IDs of jobs; all if empty
	Threshold int      // as for Replan
	DryRun    bool

	// Settle is how long Watch collects events before it acts, and the first pause before
	// it retries a failure.
	Settle time.Duration

	// Every is how often all jobs are checked without an event.
	Every time.Duration

	Report  func([]Replanned) // receives jobs with new pins, and jobs that newly wait or fail
	Trouble func(error)       // receives errors that are retried
}

// Watch replans jobs on Nomad's events, until ctx ends: a job was submitted or scaled, an
// evaluation is blocked, a node has changed. It fails if the first pass fails; later
// failures are reported and retried.
func (s *Site) Watch(ctx context.Context, options planner.Options, how Watching) error {
	_, meta, err := s.nomad.Jobs().List((&api.QueryOptions{Namespace: how.Space}).WithContext(ctx))
	if err != nil {
		return nomadFailed("list the jobs", err)
	}
	w := &watcher{site: s, options: options, how: how, agenda: newAgenda(), rests: map[jobKey]rest{}, said: map[jobKey]tellonce.Last{}}
	if err := w.pass(ctx, work{all: true}); err != nil {
		return ended(ctx, err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return w.listen(ctx, meta.LastIndex) })
	group.Go(func() error { return w.heal(ctx) })
	return group.Wait()
}

// ended is nil for an error that is due to the end of ctx.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// watcher is one Watch. Only heal uses rests and said; the agenda is shared.
type watcher struct {
	site    *Site
	options planner.Options
	how     Watching
	agenda  *agenda

	rests map[jobKey]rest          // backoff of jobs that got new pins or failed, until they need none
	said  map[jobKey]tellonce.Last // last report of a job that still waits or fails
}

// rest is the backoff of a job. It doubles each time that the job gets new pins but still
// needs some, or fails.
type rest struct {
	until time.Time
	time  time.Duration
	asked bool // whether to check the job at its end
}

// heal processes the agenda until ctx ends.
func (w *watcher) heal(ctx context.Context) error {
	retry := w.backoff()
	round := time.NewTicker(w.how.Every)
	defer round.Stop()
	for {
		if !w.wait(ctx, round.C) || pause.For(ctx, w.how.Settle) != nil {
			return nil
		}
		err := w.pass(ctx, w.agenda.take())
		if err == nil {
			retry.Reset()
			continue
		}
		if ended(ctx, err) == nil {
			return nil
		}
		w.how.Trouble(err)
		if pause.For(ctx, retry.NextBackOff()) != nil {
			return nil
		}
		w.agenda.add(work{all: true})
	}
}

// wait waits for work. It returns false when ctx ends.
func (w *watcher) wait(ctx context.Context, round <-chan time.Time) bool {
	next, left := w.nextRest()
	wake := time.NewTimer(left)
	defer wake.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-round:
		w.agenda.add(work{all: true})
	case <-wake.C:
		w.agenda.add(only(next.space, next.id))
	case <-w.agenda.news:
	}
	return true
}

// nextRest returns the job with the rest that ends first among those to check, and the time
// left.
func (w *watcher) nextRest() (next jobKey, left time.Duration) {
	left = w.how.Every // when all jobs are checked anyway
	for key, r := range w.rests {
		if l := time.Until(r.until); r.asked && l < left {
			next, left = key, l
		}
	}
	return next, left
}

// pass checks the jobs of do, and reports what is new.
func (w *watcher) pass(ctx context.Context, do work) error {
	if _, err := w.site.table.Snapshot(ctx); err != nil {
		return err
	}
	stubs, err := w.site.jobs(ctx, w.how.Space, nil)
	if err != nil {
		return err
	}
	stubs = slices.DeleteFunc(stubs, func(stub *api.JobListStub) bool {
		return len(w.how.Only) > 0 && !slices.Contains(w.how.Only, stub.ID)
	})
	w.forget(stubs)
	stubs = slices.DeleteFunc(stubs, func(stub *api.JobListStub) bool {
		return !do.has(keyOf(stub)) || w.isResting(keyOf(stub))
	})
	all, err := w.site.replanEach(ctx, stubs, false, w.options, w.how.Threshold, w.how.DryRun)
	if err != nil {
		return err
	}
	if all = slices.DeleteFunc(all, func(one Replanned) bool { return !w.isNew(one) }); len(all) > 0 {
		w.how.Report(all)
	}
	return nil
}

// isResting reports whether a job is in backoff; if so, the job is checked afterwards.
func (w *watcher) isResting(job jobKey) bool {
	r, rests := w.rests[job]
	r.asked = rests && time.Now().Before(r.until)
	if rests {
		w.rests[job] = r
	}
	return r.asked
}

// isNew reports whether the result differs from the last one of the job, and records it.
func (w *watcher) isNew(one Replanned) bool {
	key := jobKey{space: one.Namespace, id: one.Job}
	if one.Error == "" && len(one.Why) == 0 {
		delete(w.rests, key)
		delete(w.said, key)
		return false
	}
	if one.Changed || one.Error != "" {
		last := w.rests[key].time
		next := min(max(2*last, 2*w.how.Settle), w.how.Every)
		w.rests[key] = rest{until: time.Now().Add(next), time: next, asked: one.Error != ""}
	}
	said := w.said[key]
	isNew, _ := said.Note(fmt.Sprint(one.Error, one.Why))
	w.said[key] = said
	return isNew || one.Changed && !w.how.DryRun
}

// forget drops the records of jobs that no longer exist.
func (w *watcher) forget(stubs []*api.JobListStub) {
	known := map[jobKey]bool{}
	for _, stub := range stubs {
		known[keyOf(stub)] = true
	}
	maps.DeleteFunc(w.said, func(key jobKey, _ tellonce.Last) bool { return !known[key] })
	maps.DeleteFunc(w.rests, func(key jobKey, _ rest) bool { return !known[key] })
}

func (w *watcher) backoff() *backoff.ExponentialBackOff {
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval = w.how.Settle, time.Minute
	return retry
}
