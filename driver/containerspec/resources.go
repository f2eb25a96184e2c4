// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"fmt"
	"maps"
	"runtime"
	"slices"

	"github.com/hashicorp/nomad/lib/cpuset"
	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/driver/config"
)

const (
	mib             = 1024 * 1024
	minShares       = 2       // the kernel's least
	maxShares       = 262_144 // and most
	minQuota        = 1000    // microseconds; Docker refuses less
	unlimitedMemory = -1      // Nomad's memory_max for "no limit"
)

// resources limits what the container may use of the host.
func (b *builder) resources() error {
	c := b.Job
	if err := b.memory(); err != nil {
		return err
	}
	b.cpu()
	b.host.ShmSize = c.ShmSize
	b.host.StorageOpt = c.StorageOpt
	b.host.Sysctls = c.Sysctl
	if c.OOMScoreAdj < 0 && !b.Settings.AllowPrivileged {
		return fmt.Errorf("config.oom_score_adj = %d spares the task at the cost of others: %s", c.OOMScoreAdj, needsPrivileged)
	}
	b.host.OomScoreAdj = c.OOMScoreAdj
	if b.host.OomScoreAdj == 0 {
		b.host.OomScoreAdj = b.Settings.OOMScoreAdj
	}
	if err := b.pids(); err != nil {
		return err
	}
	return b.ulimits()
}

// memory follows Nomad's oversubscription: with a maximum above the task's memory,
// that memory is only reserved and the maximum is the limit. Swap is never given.
func (b *builder) memory() error {
	res := b.Task.Resources
	if res == nil || res.NomadResources == nil {
		return nil
	}
	memory := res.NomadResources.Memory
	soft, hard := memory.MemoryMB, max(b.Job.MemoryHardLimit, memory.MemoryMaxMB)
	zero := int64(0)
	b.host.MemorySwappiness = &zero
	switch {
	case memory.MemoryMaxMB == unlimitedMemory && b.Job.MemoryHardLimit <= 0:
		b.host.MemoryReservation = soft * mib
		return nil
	case hard <= 0:
		b.host.Memory = soft * mib
	case soft > hard:
		return fmt.Errorf("config.memory_hard_limit of %d MB is below the task's memory of %d MB: raise it", hard, soft)
	default:
		b.host.Memory = hard * mib
		b.host.MemoryReservation = soft * mib
	}
	b.host.MemorySwap = b.host.Memory
	return nil
}

func (b *builder) cpu() {
	c := b.Job
	b.host.CpusetCpus = c.CpusetCpus
	if b.Task.Resources == nil || b.Task.Resources.LinuxResources == nil {
		return
	}
	linux := b.Task.Resources.LinuxResources
	b.host.CPUShares = shares(linux)
	if linux.CpusetCpus != "" {
		b.host.CpusetCpus = linux.CpusetCpus
		if c.CpusetCpus != "" {
			b.remark("config.cpuset_cpus = %q has no effect: the task's reserved cores are %s", c.CpusetCpus, linux.CpusetCpus)
		}
	}
	if b.host.CpusetCpus == "" && !isWholeNode(b.SharedCPUs) {
		b.host.CpusetCpus = b.SharedCPUs
	}
	if !c.CPUHardLimit {
		return
	}
	b.host.CPUPeriod = c.CPUCFSPeriod
	if b.host.CPUPeriod == 0 {
		b.host.CPUPeriod = linux.CPUPeriod
	}
	if b.host.CPUPeriod == 0 {
		b.host.CPUPeriod = config.DefaultCPUPeriod
	}
	quota := linux.PercentTicks * float64(b.host.CPUPeriod) * float64(runtime.NumCPU())
	b.host.CPUQuota = max(int64(quota), minQuota)
}

// shares are the task's MHz, as long as the kernel has room for all of the node's. On a
// larger node they are the task's part of what it has.
func shares(linux *drivers.LinuxResources) int64 {
	own := linux.CPUShares
	if part := linux.PercentTicks; part > 0 && float64(own)/part > maxShares {
		own = int64(part * maxShares)
	}
	return min(max(own, minShares), maxShares)
}

// pids takes the task's limit, if it is within the plugin's.
func (b *builder) pids() error {
	own, most := b.Job.PidsLimit, b.Settings.PidsLimit
	limit := own
	switch {
	case own == 0:
		limit = most
	case most > 0 && own > most:
		return fmt.Errorf("config.pids_limit of %d is above the limit of %d that this client allows", own, most)
	case most > 0 && own < 0:
		b.remark("config.pids_limit = %d has no effect: this client allows no more than %d", own, most)
		limit = most
	}
	if limit != 0 {
		b.host.PidsLimit = &limit
	}
	return nil
}

func (b *builder) ulimits() error {
	for _, name := range slices.Sorted(maps.Keys(b.Job.Ulimit)) {
		limit, err := config.ParseUlimit(name, b.Job.Ulimit[name])
		if err != nil {
			return err
		}
		b.host.Ulimits = append(b.host.Ulimits, limit)
	}
	return nil
}

// isWholeNode reports whether a pool is all that this node has, and so no limit.
func isWholeNode(pool string) bool {
	cpus, err := cpuset.Parse(pool)
	return err != nil || cpus.Size() == 0 || cpus.Size() >= runtime.NumCPU()
}
