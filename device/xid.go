// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"fmt"
	"slices"

	"nomad-gpu-mem/internal/nvml"
)

// DefaultXidIgnored are the Xids that a faulty program causes on a healthy GPU: they are only
// logged.
var DefaultXidIgnored = []int{13, 31, 43, 45, 68, 109}

// xidPolicy decides which Xids make a GPU unhealthy.
type xidPolicy struct {
	critical []int // if not empty, these and no others
	ignored  []int // otherwise all but these
}

func newXidPolicy(critical, ignored []int) (xidPolicy, error) {
	for option, list := range map[string][]int{"xid_critical": critical, "xid_ignored": ignored} {
		if slices.ContainsFunc(list, func(code int) bool { return code <= 0 }) {
			return xidPolicy{}, fmt.Errorf("%s: invalid list %v, want positive numbers", option, list)
		}
	}
	if ignored == nil {
		ignored = DefaultXidIgnored
	}
	return xidPolicy{critical: critical, ignored: ignored}, nil
}

// isCritical reports whether an Xid makes its GPU unhealthy. A driver that reports a recovery
// action has already judged the Xid; critical Xids in the configuration override it.
func (p xidPolicy) isCritical(x nvml.Xid, driverJudges bool) bool {
	if len(p.critical) > 0 {
		return slices.Contains(p.critical, int(x.Code))
	}
	return !driverJudges && !slices.Contains(p.ignored, int(x.Code))
}

// driverJudges reports whether the driver reports a recovery action for the GPU of an Xid.
func driverJudges(x nvml.Xid, s *nvml.Snapshot) bool {
	return slices.ContainsFunc(s.GPUs, func(g nvml.GPU) bool { return g.UUID == x.UUID && g.Recovery != nil })
}

// about reports whether an Xid concerns a GPU: its own, or that of a MIG
// instance's GPU unless it is about another instance.
func about(x nvml.Xid, g nvml.GPU) bool {
	switch {
	case x.UUID == g.UUID:
		return true
	case g.Parent == "" || x.UUID != g.Parent:
		return false
	}
	return x.GPUInstance == nil || g.GPUInstance == nil || *x.GPUInstance == *g.GPUInstance
}

// firstCritical returns the first critical Xid of a GPU.
func firstCritical(xids []noted, g nvml.GPU) (nvml.Xid, bool) {
	at := slices.IndexFunc(xids, func(x noted) bool { return x.critical && about(x.Xid, g) })
	if at < 0 {
		return nvml.Xid{}, false
	}
	return xids[at].Xid, true
}
