// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"maps"
	"slices"
)

// Remains is the inventory of a quiet cluster: items by kind, such as mounts by path. An
// item may occur several times.
type Remains map[string][]string

// Leak is an item that exists at the end and did not exist at the beginning.
type Leak struct {
	Kind string `json:"kind"`
	Item string `json:"item"`
}

// Leaks returns what end has more than begin, by kind and item.
func Leaks(begin, end Remains) (leaks []Leak) {
	for _, kind := range slices.Sorted(maps.Keys(end)) {
		expected := map[string]int{}
		for _, item := range begin[kind] {
			expected[item]++
		}
		for _, item := range slices.Sorted(slices.Values(end[kind])) {
			if expected[item] > 0 {
				expected[item]--
				continue
			}
			leaks = append(leaks, Leak{Kind: kind, Item: item})
		}
	}
	return leaks
}
