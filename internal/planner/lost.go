// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// managed are the fields of a job, at any depth, that Nomad sets each time a job is
// registered.
var managed = []string{"CreateIndex", "ModifyIndex", "JobModifyIndex"}

// managedAtTop are such fields of the job itself. Nomad removes tokens from a job once it
// has checked them, and a tag belongs to one version.
var managedAtTop = []string{
	"Version", "VersionTag", "SubmitTime", "Status", "StatusDescription", "Stable", "NomadTokenID", "ConsulToken", "VaultToken",
}

// Lost returns the sorted paths of fields that one version of a job has and the other lacks
// or has with another value. Fields that the planner owns or Nomad sets do not count, nor
// do fields without a value.
func Lost(before, after []byte) ([]string, error) {
	old, err := decodeTree(before)
	if err != nil {
		return nil, err
	}
	now, err := decodeTree(after)
	if err != nil {
		return nil, err
	}
	var lost []string
	if err := compare(cursor{node: old}, cursor{node: now}, &lost); err != nil {
		return nil, err
	}
	slices.Sort(lost)
	return lost, nil
}

func compare(old, now cursor, lost *[]string) error {
	if isEmpty(old.node) || isManaged(old.path) || isOwned(old.path) {
		return nil
	}
	switch value := old.node.(type) {
	case map[string]any:
		if _, same := now.node.(map[string]any); !same && now.node != nil {
			break
		}
		for name := range value {
			before, err := old.in(name)
			if err != nil {
				return err
			}
			after, err := now.in(name)
			if err != nil {
				return err
			}
			if err := compare(before, after, lost); err != nil {
				return err
			}
		}
		return nil
	case []any:
		if list, same := now.node.([]any); !same || len(list) != len(value) {
			break
		}
		for i := range value {
			before, _ := old.at(i)
			after, _ := now.at(i)
			if err := compare(before, after, lost); err != nil {
				return err
			}
		}
		return nil
	default:
		if !isObject(now.node) && value == now.node {
			return nil
		}
	}
	*lost = append(*lost, cursorPath(old.path))
	return nil
}

func isObject(node any) bool {
	switch node.(type) {
	case map[string]any, []any:
		return true
	default:
		return false
	}
}

// isEmpty reports whether a field has no value, which to Nomad equals a missing field.
func isEmpty(node any) bool {
	switch value := node.(type) {
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	default:
		return node == nil || slices.Contains([]string{"", "0", "false"}, fmt.Sprint(node))
	}
}

func isManaged(path []string) bool {
	if len(path) == 0 {
		return false
	}
	return isOneOf(path[len(path)-1], managed) || len(path) == 1 && isOneOf(path[0], managedAtTop)
}

// owned are the paths that the planner writes; * is a position in a list.
var owned = [][]string{
	{"TaskGroups", "*", "Constraints"},
	{"TaskGroups", "*", "Affinities"},
	{"TaskGroups", "*", "Meta", MetaPlanned},
	{"TaskGroups", "*", "Meta", MetaLimits},
	{"TaskGroups", "*", "Tasks", "*", "Resources", "Devices", "*", "Name"},
	{"TaskGroups", "*", "Tasks", "*", "Resources", "Devices", "*", "Count"},
	{"TaskGroups", "*", "Tasks", "*", "Resources", "Devices", "*", "Constraints"},
	{"TaskGroups", "*", "Tasks", "*", "Resources", "Devices", "*", "Affinities"},
}

func isOwned(path []string) bool {
	return slices.ContainsFunc(owned, func(place []string) bool {
		return slices.EqualFunc(place, path, func(want, have string) bool {
			if want == "*" {
				_, err := strconv.Atoi(have)
				return err == nil
			}
			return strings.EqualFold(want, have)
		})
	})
}

func isOneOf(name string, names []string) bool {
	return slices.ContainsFunc(names, func(other string) bool { return strings.EqualFold(name, other) })
}
