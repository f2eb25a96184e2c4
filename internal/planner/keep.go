// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/profile"
)

// registeredGroup returns the group that Nomad has under that name, nil if none.
func registeredGroup(job *api.Job, name string) *api.TaskGroup {
	if job == nil || job.Stop != nil && *job.Stop {
		return nil
	}
	for _, group := range job.TaskGroups {
		if deref(group.Name) == name {
			return group
		}
	}
	return nil
}

// keep gives a running group its current pins if it asks for the same as before. If it does
// not, Nomad restarts it in any case. A changed profile does not count when the registered
// job itself is planned again.
func (w *groupPlan) keep(cluster Cluster, name string, replan bool) bool {
	running, err := canonical(cluster.Registered)
	if err != nil {
		return false
	}
	bare, err := clone(running)
	if err != nil {
		return false
	}
	group, unpinned := registeredGroup(running, name), registeredGroup(bare, name)
	unpin(unpinned)
	before, err := findAsks(bare, unpinned, cluster.Profiles)
	if err != nil || !sameAsks(before, w.asks) || !replan && !sameCounts(devices(group), w.asks) {
		return false
	}
	w.take(group)
	return true
}

// take copies the pins of a registered group.
func (w *groupPlan) take(running *api.TaskGroup) {
	for i, d := range devices(running) {
		*w.asks[i].device = *d.device
	}
	if _, planned := running.Meta[MetaPlanned]; !planned {
		return
	}
	for _, key := range []string{MetaPlanned, MetaLimits} { // unchanged: Nomad restarts a task when its meta changes
		if value, written := running.Meta[key]; written {
			w.setMeta(key, value)
		}
	}
	if at := nodeList(running.Constraints); at >= 0 {
		w.confineBy(running.Constraints[at])
	}
	n := len(running.Affinities) - preferences(running.Affinities, targetNode)
	w.spec.Affinities = append(w.spec.Affinities, running.Affinities[n:]...)
}

// sameAsks reports whether two versions of a group ask for the same.
func sameAsks(a, b []ask) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].task.Name != b[i].task.Name || a[i].need != b[i].need || a[i].apart != b[i].apart ||
			gpuOf(a[i].device.Name) != gpuOf(b[i].device.Name) ||
			!same(a[i].device.Constraints, b[i].device.Constraints) || !same(a[i].device.Affinities, b[i].device.Affinities) {
			return false
		}
	}
	return true
}

// sameCounts reports whether the running device blocks have the memory that their profiles
// state now.
func sameCounts(running []taskDevice, asks []ask) bool {
	for i, d := range running {
		if unit := unitIn(d.device); asks[i].need.MiB > 0 && unit > 0 &&
			profile.Units(asks[i].need.MiB, unit) != int(*d.device.Count) {
			return false
		}
	}
	return true
}

// unitIn reads the size of a unit from the limit in a device block, 0 if it has none.
func unitIn(device *api.RequestedDevice) uint64 {
	for _, c := range slices.Backward(device.Constraints) { // the job's own come first
		if c.LTarget == targetUnitMiB && c.Operand == ">=" {
			unit, err := strconv.ParseUint(strings.TrimSuffix(c.RTarget, " MiB"), 10, 64)
			if err == nil {
				return unit
			}
		}
	}
	return 0
}

// same compares two lists; nil and empty are equal to Nomad.
func same[T any](a, b []T) bool { return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, b) }

// spellings of allocator.Device are equivalent to the scheduler. When Nomad compares two
// versions of a task it identifies device blocks by name. Among blocks of the same name it
// would restart the task needlessly, or miss a change.
var spellings = []string{
	allocator.Device, allocator.DeviceType, allocator.Device + "/", "/" + allocator.DeviceType, "/" + allocator.DeviceType + "/",
}

// respell gives the device blocks of each task different names. Names with a GPU stay, and
// so do names that a numa block refers to: Nomad rejects a numa block that names an unknown
// device. Blocks beyond the number of spellings share the last one.
func (w *groupPlan) respell() {
	stays := func(a ask) bool {
		numa := a.task.Resources.NUMA
		return gpuOf(a.device.Name) != "" || numa != nil && slices.Contains(numa.Devices, a.device.Name)
	}
	count, taken := map[*api.Task]int{}, map[*api.Task][]string{}
	for _, a := range w.asks {
		if stays(a) {
			taken[a.task] = append(taken[a.task], a.device.Name)
		} else {
			count[a.task]++
		}
	}
	for _, a := range w.asks {
		if stays(a) || count[a.task] < 2 {
			continue
		}
		a.device.Name = spellings[len(spellings)-1]
		if at := slices.IndexFunc(spellings, func(name string) bool { return !slices.Contains(taken[a.task], name) }); at >= 0 {
			a.device.Name = spellings[at]
		}
		taken[a.task] = append(taken[a.task], a.device.Name)
	}
}
