// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/profile"
)

// Keys of a job's, group's or task's meta block. The innermost wins, as for all meta.
// The planner writes MetaPlanned and MetaLimits.
const (
	metaPrefix  = "gpu_mem_"
	MetaAmount  = "gpu_mem"         // "whole": all units of one GPU
	MetaProfile = "gpu_mem_profile" // the profile that states how much; attributes are gpu_mem_<name>
	MetaApart   = "gpu_mem_apart"   // "false": the asks of a task may share a GPU
	MetaPlanned = "gpu_mem_planned" // of a planned group: the requested pin
	MetaLimits  = "gpu_mem_limits"  // of a planned group: how many constraints were added to each device block
)

// ask is one device block for GPU memory.
type ask struct {
	task   *api.Task
	device *api.RequestedDevice
	need   need
	apart  bool // not on the GPU of another ask of its task
}

// need is how much of one GPU an ask needs: one of the three fields is set.
type need struct {
	Units int
	MiB   uint64
	Whole bool
}

// HasAsks reports whether a job asks for GPU memory.
func HasAsks(job *api.Job) bool {
	return slices.ContainsFunc(job.TaskGroups, func(g *api.TaskGroup) bool { return len(devices(g)) > 0 })
}

// ProfileNames returns the names of the profiles that a job uses.
func ProfileNames(job *api.Job) []string {
	var names []string
	for _, group := range job.TaskGroups {
		for _, d := range devices(group) {
			if name := metaOf(job, group, d.task)[MetaProfile]; name != "" {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// taskDevice is a device block for GPU memory, and its task.
type taskDevice struct {
	task   *api.Task
	device *api.RequestedDevice
}

// devices returns the device blocks of a group that ask for GPU memory.
func devices(group *api.TaskGroup) []taskDevice {
	var found []taskDevice
	for _, task := range group.Tasks {
		if task.Resources == nil {
			continue
		}
		for _, d := range task.Resources.Devices {
			if isOurs(d.Name) {
				found = append(found, taskDevice{task: task, device: d})
			}
		}
	}
	return found
}

// isOurs reports whether a device block asks for GPU memory, by Nomad's rules: the
// name is type, vendor/type or vendor/type/name, and an empty part matches any.
func isOurs(name string) bool {
	vendor, kind, _ := splitDevice(name)
	return kind == allocator.DeviceType && (vendor == "" || vendor == allocator.DeviceVendor)
}

// gpuOf returns the UUID that a device block names, "" if none.
func gpuOf(name string) string {
	_, _, gpu := splitDevice(name)
	return gpu
}

func splitDevice(name string) (vendor, kind, group string) {
	parts := strings.SplitN(name, "/", 3)
	switch len(parts) {
	case 1:
		return "", parts[0], ""
	case 2:
		return parts[0], parts[1], ""
	default:
		return parts[0], parts[1], parts[2]
	}
}

// findAsks reads what a group asks for.
func findAsks(job *api.Job, group *api.TaskGroup, profiles map[string]allocator.Profile) ([]ask, error) {
	var asks []ask
	for _, d := range devices(group) {
		meta := metaOf(job, group, d.task)
		n, err := needOf(d.device, meta, profiles)
		if err != nil {
			return nil, fmt.Errorf("group %q, task %q: %w", deref(group.Name), d.task.Name, err)
		}
		asks = append(asks, ask{task: d.task, device: d.device, need: n, apart: meta[MetaApart] != "false"})
	}
	return asks, nil
}

// metaOf merges the meta blocks that concern a task, as Nomad does.
func metaOf(job *api.Job, group *api.TaskGroup, task *api.Task) map[string]string {
	merged := map[string]string{}
	for _, meta := range []map[string]string{job.Meta, group.Meta, task.Meta} {
		for key, value := range meta {
			merged[key] = value
		}
	}
	return merged
}

// needOf returns the need of one ask: the count of its device block, unless meta sets
// something else.
func needOf(device *api.RequestedDevice, meta map[string]string, profiles map[string]allocator.Profile) (need, error) {
	amount, name := meta[MetaAmount], meta[MetaProfile]
	switch {
	case amount != "" && name != "":
		return need{}, fmt.Errorf("meta has both %s and %s; keep one", MetaAmount, MetaProfile)
	case amount == "whole":
		return need{Whole: true}, nil
	case amount != "":
		return need{}, fmt.Errorf(`meta key %s: invalid value %q, want "whole"`, MetaAmount, amount)
	case name != "":
		return profileNeed(name, meta, profiles)
	case device.Count == nil:
		return need{Units: 1}, nil
	case *device.Count == 0:
		return need{}, errors.New("device block with count = 0, which Nomad never places; leave the block out")
	default:
		return need{Units: int(min(*device.Count, maxUnits))}, nil
	}
}

// maxUnits is more than any GPU has.
const maxUnits = 1 << 30

func profileNeed(name string, meta map[string]string, profiles map[string]allocator.Profile) (need, error) {
	p, known := profiles[name]
	if !known {
		return need{}, fmt.Errorf("profile %q not found; `nomad-gpu-mem profile list` lists all", name)
	}
	attributes := map[string]string{}
	for key, value := range meta {
		if attribute, ok := strings.CutPrefix(key, metaPrefix); ok {
			attributes[attribute] = value
		}
	}
	mib, err := Formula(p).Need(attributes)
	if err != nil {
		return need{}, fmt.Errorf("profile %q (attributes are meta keys %s<name>): %w", name, metaPrefix, err)
	}
	return need{MiB: mib}, nil
}

// Formula returns the formula of a profile in the table.
func Formula(p allocator.Profile) profile.Formula {
	return profile.Formula{BaseMiB: p.BaseMiB, MiBPer: p.MiBPer, MinMiB: p.MinMiB, MaxMiB: p.MaxMiB}
}

// CheckAttributes returns an error if the meta key of an attribute has another meaning.
func CheckAttributes(p allocator.Profile) error {
	for name := range p.MiBPer {
		if key := metaPrefix + name; slices.Contains([]string{MetaProfile, MetaApart, MetaPlanned, MetaLimits}, key) {
			return fmt.Errorf("attribute %q: the meta key %s has another meaning; use another name", name, key)
		}
	}
	return nil
}

func (n need) String() string {
	switch {
	case n.Whole:
		return "a whole GPU"
	case n.MiB > 0:
		return fmt.Sprintf("%d MiB", n.MiB)
	default:
		return fmt.Sprintf("%d units", n.Units)
	}
}
