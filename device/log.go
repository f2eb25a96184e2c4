// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"reflect"
	"strconv"

	"github.com/hashicorp/go-hclog"

	"nomad-gpu-mem/internal/nvml"
)

// logChanges logs each change once.
func logChanges(logger hclog.Logger, before, now inventory, set settings) {
	logFault(logger, before.fault, now.fault, set)
	logXids(logger, before, now)
	for _, uuid := range now.passed[len(before.passed):] {
		logger.Info("GPU is not offered: excluded by include or ignore", "gpu", uuid)
	}
	for _, g := range now.offered {
		known, isKnown := before.find(g.id())
		gpuLog := logger.With("gpu", g.UUID, "model", g.Name)
		if !isKnown {
			logOffer(gpuLog, g, set)
		}
		logHealth(gpuLog, known, g, now.fault != nil)
	}
	for _, g := range now.refused {
		if last, _ := find(before.refused, g.id()); last.health != g.health {
			logger.Warn("GPU is not offered", "gpu", g.UUID, "model", g.Name, "reason", g.health)
		}
	}
}

func logHealth(logger hclog.Logger, before, now gpu, nodeFault bool) {
	switch {
	case nodeFault:
	case before.health == now.health:
	case now.health == "":
		logger.Info("GPU can be used again", "units", now.units)
	default:
		logger.Warn("GPU cannot be used; its units are unhealthy", "reason", now.health)
	}
	if now.health != "" {
		return
	}
	switch {
	case reflect.DeepEqual(before.withheld, now.withheld):
	case len(now.withheld) == 0:
		logger.Info("all units of the GPU can be used again")
	default:
		logger.Warn("some units of the GPU cannot be used", "units", now.unhealthy(), "reason", now.whyWithheld(),
			"unmanaged_mib", now.unmanagedMiB)
	}
}

func logOffer(logger hclog.Logger, g gpu, set settings) {
	logger.Info("GPU is offered", "memory_mib", g.Memory.TotalMiB, "reserved_mib", g.reservedMiB,
		"memory_unit", set.unitText, "units", g.units)
	if g.PersistenceMode != nil && !*g.PersistenceMode {
		logger.Warn("persistence mode is off: the driver reinitializes the GPU after each use, which takes seconds")
	}
}

func logFault(logger hclog.Logger, before, now error, set settings) {
	switch {
	case now != nil && (before == nil || before.Error() != now.Error()):
		logger.Warn("cannot read GPUs; retrying", "nvml_library", orDefault(set.library, nvml.DefaultLibrary),
			"poll_interval", set.pollInterval.String(), "error", now)
	case now == nil && before != nil:
		logger.Info("GPUs can be read again")
	}
}

func logXids(logger hclog.Logger, before, now inventory) {
	for _, xid := range now.xids {
		if !xid.critical {
			logger.Info("GPU reported an error caused by a program", "gpu", xid.UUID, "xid", strconv.FormatUint(xid.Code, 10))
		}
	}
	if now.xidsErr != nil && (before.xidsErr == nil || before.xidsErr.Error() != now.xidsErr.Error()) {
		logger.Info("GPUs report no Xids; only polling detects faults", "error", now.xidsErr)
	}
}
