// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package soak

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// fault is one kind of fault.
type fault struct {
	name   string
	weight int
	// strike injects the fault and returns its repair, nil if the cluster recovers by
	// itself.
	strike func(s *soak, random *rand.Rand) (repair func() error, err error)
	// lasts is the minimum time before the repair; the maximum is twice that.
	lasts time.Duration
}

// families are all faults; each family has its own file.
var families = [][]fault{processFaults, engineFaults, tableFaults, containerFaults, gpuFaults}

func allFaults() (all []fault) {
	for _, family := range families {
		all = append(all, family...)
	}
	return all
}

// strikeAll injects faults until ctx ends, one after the other and sometimes two at once.
// When it returns all are repaired, and all agents run.
func (s *soak) strikeAll(ctx context.Context) error {
	agents, err := s.agentLives()
	if err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(s.seed, 4))
	faults := allFaults()
	for wait(ctx, faultRest+time.Duration(random.Int64N(int64(faultRest)))) {
		first := choose(faults, random)
		struck := []*struck{s.strike(first, random)}
		if random.IntN(4) == 0 {
			struck = append(struck, s.strike(choose(faults, random), random))
		}
		wait(ctx, first.lasts+time.Duration(random.Int64N(int64(first.lasts)+1)))
		var mending sync.WaitGroup // one repair may depend on another
		for _, f := range struck {
			mending.Go(func() { f.mend(s) })
		}
		mending.Wait()
		if err := s.reviveAgents(agents); err != nil {
			return err
		}
	}
	return nil
}

const faultRest = 1500 * time.Millisecond // at least, between two faults

func choose(faults []fault, random *rand.Rand) fault {
	sum := 0
	for _, f := range faults {
		sum += f.weight
	}
	at := random.IntN(sum)
	for _, f := range faults {
		if at -= f.weight; at < 0 {
			return f
		}
	}
	panic("weights were summed above")
}

// struck is an injected fault.
type struck struct {
	fault
	at     time.Time
	repair func() error
	err    error
}

func (s *soak) strike(f fault, random *rand.Rand) *struck {
	began := &struck{fault: f, at: time.Now()}
	began.repair, began.err = f.strike(s, random)
	return began
}

// mend repairs the fault and counts it. A repair that fails would leave the cluster
// broken: it ends the test.
func (f *struck) mend(s *soak) {
	if f.repair != nil {
		if err := f.repair(); err != nil {
			s.fail(errors.Join(errors.New("repair after fault "+f.name), err))
		}
	}
	s.count(s.report.Faults, f.name, time.Since(f.at), f.err)
}

// slug makes an ID of words.
func slug(name string) string {
	return strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(name)
}
