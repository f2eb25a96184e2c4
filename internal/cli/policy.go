// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"fmt"
	"math"
	"strings"

	"nomad-gpu-mem/allocator/placement"
)

// policyNames lists the placement policies, for the help of a flag.
func policyNames() string {
	var names []string
	for _, p := range placement.Policies() {
		names = append(names, p.Name)
	}
	return strings.Join(names, ", ")
}

// balanced gives the policy "balanced" the weights of --balance. They must be valid for
// every policy.
func balanced(policy placement.Policy, weights []float64) (placement.Policy, error) {
	if len(weights) != 3 {
		return policy, fmt.Errorf("--balance takes three weights, got %d", len(weights))
	}
	for _, w := range weights {
		if !(w >= 0) || math.IsInf(w, 0) {
			return policy, fmt.Errorf("--balance: invalid weight %g, want a finite number >= 0", w)
		}
	}
	if policy.Name == "balanced" {
		policy.Weights = placement.Balanced(weights[0], weights[1], weights[2])
	}
	return policy, nil
}
