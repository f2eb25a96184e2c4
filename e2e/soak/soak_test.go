// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package soak

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/e2e/soak/model"
)

const (
	shortChurn  = 90 * time.Second
	progressFor = 10 * time.Second // between two lines

	// quietTime bounds how long the cluster may take to be quiet after the last fault. A plugin keeps a container that has
	// ended for ten minutes after its own start, and looks for containers without a task every five minutes.
	quietTime = 16 * time.Minute
)

// soak is one run of the soak.
type soak struct {
	*cluster
	seed     uint64
	observer *observer
	gauges   *gauges
	stop     context.CancelCauseFunc // ends the churn

	mu       sync.Mutex
	report   model.Report
	failures map[int]int // of each GPU
}

// Under all jobs and faults no unit is used twice, and nothing is lost or leaked.
func TestSoak(t *testing.T) {
	seed, churn := settings(t)
	t.Logf("seed %d, churning for %s", seed, churn)
	c, err := startCluster()
	t.Cleanup(func() { must.NoError(t, c.down()) })
	must.NoError(t, err)
	s := newSoak(c, seed)

	must.NoError(t, s.sellAll(t.Context()))
	must.NoError(t, s.stopAll(t.Context()))
	begin := s.settle(t)
	s.gauges.rest()
	t.Run("injected violations are found", func(t *testing.T) { testInjected(t, c, begin) })

	must.NoError(t, s.run(t.Context(), churn))
	s.finish(t, begin)
	s.publish(t)
	must.NoError(t, s.report.Err())
}

// settings are the variables of `make soak`.
func settings(t *testing.T) (seed uint64, churn time.Duration) {
	t.Helper()
	seed = uint64(time.Now().UnixNano())
	if text := os.Getenv("SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		must.NoError(t, err, must.Sprint("SEED is the number that an earlier run printed"))
	}
	if testing.Short() {
		return seed, shortChurn
	}
	minutes, err := strconv.ParseFloat(cmp.Or(os.Getenv("MINUTES"), "10"), 64)
	must.NoError(t, err, must.Sprint("MINUTES is a number"))
	return seed, time.Duration(minutes * float64(time.Minute))
}

func newSoak(c *cluster, seed uint64) *soak {
	s := &soak{cluster: c, seed: seed, gauges: &gauges{cluster: c}, failures: map[int]int{}}
	s.report = model.Report{
		Seed: seed, Nodes: nodes, GPUs: len(c.gpus.GPUs), Began: time.Now().UTC(),
		Operations: map[string]model.Tally{}, Faults: map[string]model.Tally{}, Hostile: map[string]model.Tally{},
	}
	s.observer = newObserver(c, s.violated)
	return s
}

// run churns under faults for a duration. It returns only errors of the soak itself.
func (s *soak) run(ctx context.Context, churn time.Duration) error {
	observing, stopObserving := context.WithCancel(ctx)
	defer stopObserving()
	churning, stop := context.WithCancelCause(observing)
	s.stop = stop
	defer time.AfterFunc(churn, func() { stop(nil) }).Stop()

	var work, watch sync.WaitGroup
	watch.Go(func() { s.observer.observe(observing) })
	watch.Go(func() { s.gauges.follow(observing) })
	watch.Go(func() { s.tellProgress(observing) })
	begun := time.Now()
	work.Go(func() { s.churn(churning) })
	work.Go(func() { s.fail(s.strikeAll(churning)) })
	work.Wait()
	s.report.Churned = time.Since(begun)
	if cause := context.Cause(churning); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	stopping, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	err := s.stopAll(stopping)
	stopObserving()
	watch.Wait()
	return err
}

// finish waits until the cluster is quiet, and records leaks.
func (s *soak) finish(t *testing.T, begin model.Remains) {
	t.Helper()
	stopped := time.Now()
	end := s.settleTo(t, begin)
	s.report.Settled = time.Since(stopped)
	s.report.Leaks, s.report.OthersLeft = s.leaks(begin, end)
	s.printTrail(s.report.Leaks)
	s.report.Processes = s.gauges.trends()
	if err := s.sellAll(t.Context()); err != nil {
		s.violated(model.Violation{Kind: model.Lost, At: time.Now(), Text: err.Error()})
	}
	s.report.Containers, s.report.Looks, s.report.Blind = s.observer.timeline.Runs(), s.observer.looks, s.observer.blind
	must.NoError(t, s.stopAll(t.Context()))
}

// publish prints the report, and writes it as JSON if requested.
func (s *soak) publish(t *testing.T) {
	t.Helper()
	s.report.Write(os.Stdout)
	if path := os.Getenv("GPU_MEM_SOAK_JSON"); path != "" {
		text, err := s.report.JSON()
		must.NoError(t, err)
		must.NoError(t, os.WriteFile(path, text, 0o600))
	}
}

func (s *soak) tellProgress(ctx context.Context) {
	begun := time.Now()
	for wait(ctx, progressFor) {
		running := len(s.observer.running())
		s.observer.mu.Lock()
		looks, held, runs := s.observer.looks, s.observer.held, s.observer.timeline.Runs()
		s.observer.mu.Unlock()
		s.mu.Lock()
		fmt.Printf("%6s  %d operations, %d faults, %d containers so far, %d run, %d claims, %d looks, %d violations\n",
			time.Since(begun).Round(time.Second), total(s.report.Operations), total(s.report.Faults), runs, running, held, looks,
			len(s.report.Violations))
		s.mu.Unlock()
	}
}

func total(tallies map[string]model.Tally) (sum int) {
	for _, t := range tallies {
		sum += t.Count
	}
	return sum
}

// count counts an operation, done or failed.
func (s *soak) count(in map[string]model.Tally, name string, took time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tally := in[name]
	tally.Add(took, err != nil)
	in[name] = tally
	if err != nil && !errors.Is(err, errNothing) {
		s.note(fmt.Sprintf("%q was not done: %.300v", name, err))
	}
}

// violated adds a violation to the report and logs it at once.
func (s *soak) violated(v model.Violation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Violations = append(s.report.Violations, v)
	fmt.Printf("VIOLATED: %s: %s\n", v.Kind, v.Text)
}

const mostNotes = 50

// note adds a note to the report, each only once. The caller holds the lock.
func (s *soak) note(text string) {
	if len(s.report.Notes) < mostNotes && !slices.Contains(s.report.Notes, text) {
		s.report.Notes = append(s.report.Notes, text)
	}
}

// fail ends the churn because of an error of the soak itself.
func (s *soak) fail(err error) { s.stop(err) }
