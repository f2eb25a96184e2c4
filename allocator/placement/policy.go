// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package placement

import (
	"fmt"
	"slices"
	"strings"
)

// Policy defines the best of the places that fit: the one with the largest sum of weighted
// measures. If all weights are 0, Ties decides.
type Policy struct {
	Name    string
	About   string // description in one line
	Weights Weights
	Buckets bool // compare fragmentation as fgd does, in steps; see measure.go
	Ties    Ties
	Target  Target // which demand it looks at, if any
}

// Weights are how much each measure of a place counts, in thousandths; negative weights avoid
// it.
type Weights [measures]int

// Measure is a property of a place. Those in MiB are GPU memory, and measure the change by
// the placement. Those in load are thousandths of the node's GPU memory, and measure the
// state after it.
type Measure int

// The measures.
const (
	Misfit        Measure = iota // MiB: growth of free memory that tasks will not fill, however well they are placed
	Fragmentation                // MiB: growth of free memory that the next task cannot use, mean over the demand
	Stranding                    // MiB: growth of free memory beyond what the node's free CPU can serve
	Scarcity                     // MiB: taken, as far as tasks that may not go everywhere will miss it
	Room                         // MiB: of large tasks that will miss the room that is lost
	Remainder                    // MiB: left on the chosen GPUs
	NodeLoad                     // load: memory in use on the node
	Imbalance                    // load: distance of the node's GPUs from their mean
	Fragments                    // load: fragmentation
	measures      = iota
)

// Ties is which of several best places is taken.
type Ties int

// Ties are broken by the order in which nodes were first set, by an order that the seed
// shuffles, or at random for every request.
const (
	TiesByOrder Ties = iota
	TiesShuffled
	TiesRandom
)

// Target is which part of the demand counts, and how much.
type Target struct {
	CoverPermille int  // most frequent classes first, up to this share of all tasks; 0 is all
	GPUOnly       bool // without classes that ask for no GPU
	BySize        bool // a class counts with the square root of its size in GPUs, too
}

// DefaultPolicy is the default policy.
const DefaultPolicy = "least-waste"

// policies lists all policies, the default first.
var policies = []Policy{
	{
		Name:  DefaultPolicy,
		About: "waste least: leave memory that future tasks can fill, and CPU beside it",
		Weights: Weights{
			Misfit: -10_000, Fragmentation: -1000, Stranding: -600, Scarcity: -500, Room: -3000, Remainder: -50,
		},
		Ties:   TiesShuffled,
		Target: Target{CoverPermille: 990, GPUOnly: true, BySize: true},
	},
	{
		Name:    "most-use",
		About:   "as least-waste, but without keeping nodes free for large tasks: for clusters that are always full",
		Weights: Weights{Misfit: -10_000, Fragmentation: -1000, Stranding: -600, Scarcity: -500, Remainder: -50},
		Ties:    TiesShuffled,
		Target:  Target{CoverPermille: 990, GPUOnly: true, BySize: true},
	},
	{
		Name:    "fgd",
		About:   "fragmentation gradient descent, as published (USENIX ATC'23)",
		Weights: Weights{Fragmentation: -1000},
		Buckets: true,
		Ties:    TiesShuffled,
		Target:  Target{CoverPermille: 950},
	},
	{
		Name:    "best-fit",
		About:   "smallest remainder on the GPU, then the fullest node",
		Weights: Weights{Remainder: -1000_000, NodeLoad: 500},
		Ties:    TiesShuffled,
	},
	{
		Name:    "pack",
		About:   "the fullest node, there the fullest GPU",
		Weights: Weights{NodeLoad: 1000_000, Remainder: -1},
		Ties:    TiesShuffled,
	},
	{
		Name:    "spread",
		About:   "the emptiest node, there the emptiest GPU",
		Weights: Weights{NodeLoad: -1000_000, Remainder: 1},
		Ties:    TiesShuffled,
	},
	{
		Name:    "balanced",
		About:   "even load over nodes, and over a node's GPUs, and room for future tasks; three weights",
		Weights: Balanced(1, 1, 1),
		Ties:    TiesShuffled,
		Target:  Target{CoverPermille: 990, GPUOnly: true, BySize: true},
	},
	{Name: "sequential", About: "the first node that fits, in their order", Ties: TiesByOrder},
	{Name: "random", About: "any node that fits", Ties: TiesRandom},
}

// UsesDemand reports whether the policy depends on the demand of future tasks.
func (p Policy) UsesDemand() bool {
	w := p.Weights
	return w[Misfit] != 0 || w[Fragmentation] != 0 || w[Stranding] != 0 || w[Scarcity] != 0 || w[Room] != 0 || w[Fragments] != 0
}

// Balanced are the weights of the policy "balanced": of even load over nodes,
// of even load over each node's GPUs, and of memory that stays usable.
func Balanced(nodes, gpus, future float64) Weights {
	return Weights{
		NodeLoad:  -int(1000 * nodes),
		Imbalance: -int(1000 * gpus),
		Fragments: -int(1000 * future),
	}
}

// Policies returns all policies, the default first.
func Policies() []Policy { return slices.Clone(policies) }

// PolicyNamed returns the policy with this name.
func PolicyNamed(name string) (Policy, error) {
	var names []string
	for _, p := range policies {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return Policy{}, fmt.Errorf("unknown placement policy %q, want one of %s", name, strings.Join(names, ", "))
}
