// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"maps"
	"slices"
)

// Remains is what is there when a cluster is quiet: items by kind, such as mounts by
// path. An item may be there several times.
type Remains map[string][]string

// Leak is what was not there at the beginning and is there at the end.
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
