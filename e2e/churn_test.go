// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

const (
	churnJobs       = 12
	churnOperations = 200
)

// Twelve jobs start and stop in random order. At no moment does a container
// run without its own units, and at the end no unit is held.
func TestChurnLosesAndDoublesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	watch := shared.watchUnits(ctx)

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var workers sync.WaitGroup
	for n := range churnJobs {
		workers.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(n)))
			shared.churn(t, fmt.Sprintf("churn-%02d", n), churnOperations/churnJobs+1, random)
		})
	}
	workers.Wait()
	cancel()
	checks, err := watch()
	must.NoError(t, err)
	t.Logf("%d operations, %d looks at containers and table", churnJobs*(churnOperations/churnJobs+1), checks)
	must.Positive(t, checks)
	shared.requireEmpty(t)
}

// churn repeatedly starts the job if it is stopped and stops it if it runs, and waits
// only for Nomad's answer and a moment.
func (c *cluster) churn(t *testing.T, name string, operations int, random *rand.Rand) {
	started := false
	for range operations {
		var err error
		if started {
			_, _, err = c.nomad.Jobs().Deregister(name, random.IntN(2) == 0, nil)
		} else {
			_, _, err = c.nomad.Jobs().Register(gpuJob(name, 1+uint64(random.IntN(8))), nil)
		}
		if err != nil {
			t.Errorf("job %s: %v", name, err)
			return
		}
		started = !started
		time.Sleep(time.Duration(500+random.IntN(4000)) * time.Millisecond)
	}
	if _, _, err := c.nomad.Jobs().Deregister(name, true, nil); err != nil {
		t.Errorf("job %s: %v", name, err)
	}
}

// watchUnits checks containers and claims repeatedly until ctx ends. The returned
// function waits for the end and returns the number of checks and the errors.
func (c *cluster) watchUnits(ctx context.Context) (wait func() (int, error)) {
	var checks int
	var errs []error
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := c.checkUnits(); err != nil {
				errs = append(errs, err)
			}
			checks++
		}
	}()
	return func() (int, error) {
		<-done
		return checks, errors.Join(errs...)
	}
}

// checkUnits verifies that each of our containers that ran during the check has
// its own claim. Reading the table verifies that no unit has two claims.
func (c *cluster) checkUnits() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	before, err := c.runningAllocs(ctx)
	if err != nil {
		return err
	}
	s, err := c.table.Snapshot(ctx)
	if err != nil {
		return err
	}
	after, err := c.runningAllocs(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, problem := range s.Problems {
		errs = append(errs, fmt.Errorf("key %s: %w", problem.Key, problem.Err))
	}
	claimed := map[string]bool{}
	for _, gpu := range s.GPUs {
		for _, claim := range gpu.Claims() {
			claimed[claim.Alloc] = true
		}
	}
	for alloc := range before {
		if after[alloc] && !claimed[alloc] {
			errs = append(errs, fmt.Errorf("allocation %s has a running container and no claim", alloc))
		}
	}
	return errors.Join(errs...)
}

// runningAllocs returns the allocations with a running container of ours that
// holds a slice.
func (c *cluster) runningAllocs(ctx context.Context) (map[string]bool, error) {
	all, err := c.cri.List(ctx, map[string]string{labelAlloc: ""})
	if err != nil {
		return nil, err
	}
	allocs := map[string]bool{}
	for _, found := range all {
		if found.Running && found.Labels[labelGPUs] != "" {
			allocs[found.Labels[labelAlloc]] = true
		}
	}
	return allocs, nil
}

// Labels by which our containers name their allocation and their GPUs.
const (
	labelAlloc = "nomad-gpu-mem.alloc_id"
	labelGPUs  = "nomad-gpu-mem.gpus"
)
