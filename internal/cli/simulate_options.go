// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"nomad-gpu-mem/allocator/placement"
	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/simulate"
	"nomad-gpu-mem/internal/simulate/nomad"
)

// contest holds the options that select the schedulers to compare.
type contest struct {
	policies  []string
	balance   []float64
	demand    string
	scheduler string
	pins      []string
}

// unpinned selects Nomad's scheduler without a planner.
const unpinned = "none"

func (c *contest) register(flags *pflag.FlagSet) {
	flags.StringSliceVar(&c.policies, "policy", []string{placement.DefaultPolicy}, "placement `policies`: "+policyNames())
	flags.Float64SliceVar(&c.balance, "balance", []float64{1, 1, 1}, "three `weights` of the policy balanced: even load over nodes, over a node's GPUs, room for future tasks")
	flags.StringVar(&c.demand, "demand", "given", "what policies know of future tasks: given, learned or both")
	flags.StringVar(&c.scheduler, "scheduler", "policy", "who places the tasks: policy, or nomad for Nomad's scheduler")
	flags.StringSliceVar(&c.pins, "pin", []string{unpinned, string(planner.Shortlist)}, "how policies steer Nomad's scheduler: none, soft, shortlist, hard")
}

// contenders are the schedulers to compare.
func (c *contest) contenders() ([]simulate.Contender, error) {
	steerings, err := c.steerings()
	if err != nil {
		return nil, err
	}
	var all []simulate.Contender
	switch c.scheduler {
	case "policy":
		for _, s := range steerings {
			all = append(all, s.Contender())
		}
	case "nomad":
		for _, name := range c.pins {
			if name == unpinned {
				all = append(all, nomad.Stock())
				continue
			}
			pin, err := planner.ParsePin(name)
			if err != nil {
				return nil, err
			}
			for _, s := range steerings {
				all = append(all, nomad.Steered(s, pin))
			}
		}
	default:
		return nil, fmt.Errorf("--scheduler=%s must be policy or nomad", c.scheduler)
	}
	if len(all) == 0 {
		return nil, errors.New("--policy or --pin is empty: nothing to compare")
	}
	return all, nil
}

// steerings returns the policies, each with what it knows of future tasks.
func (c *contest) steerings() ([]simulate.Steering, error) {
	known := map[string][]bool{"given": {false}, "learned": {true}, "both": {false, true}}[c.demand]
	if known == nil {
		return nil, fmt.Errorf("--demand=%s must be given, learned or both", c.demand)
	}
	var all []simulate.Steering
	for _, name := range c.policies {
		policy, err := placement.PolicyNamed(name)
		if err == nil {
			policy, err = balanced(policy, c.balance)
		}
		if err != nil {
			return nil, err
		}
		if !policy.UsesDemand() {
			all = append(all, simulate.Steering{Policy: policy})
			continue
		}
		for _, learned := range known {
			all = append(all, simulate.Steering{Policy: policy, Learned: learned})
		}
	}
	return all, nil
}

// maxSeeds bounds a range of seeds: a typing error would run for days.
const maxSeeds = 1000

// parseSeeds reads numbers and ranges, separated by commas.
func parseSeeds(text string) ([]uint64, error) {
	var seeds []uint64
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 64)
		to, err2 := strconv.ParseUint(last, 10, 64)
		if err := errors.Join(err, err2); err != nil || to < from || to-from >= maxSeeds {
			return nil, fmt.Errorf("--seeds=%s: invalid seed or range %q, want for example 42-51, at most %d seeds", text, part, maxSeeds)
		}
		for seed := from; seed <= to; seed++ {
			seeds = append(seeds, seed)
		}
	}
	return seeds, nil
}
