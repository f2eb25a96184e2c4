package device

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"nomad-gpu-mem/internal/nvml"
)

// poll reads the GPUs again and again and posts what there is to offer. It
// ends with ctx.
func (p *Plugin) poll(ctx context.Context, set settings) {
	reader := p.openReader(set.library)
	defer reader.Close()
	ticker := time.NewTicker(set.pollInterval)
	defer ticker.Stop()
	for {
		before, _ := p.board.read()
		now := readOnce(ctx, reader, before, set)
		if ctx.Err() != nil {
			return
		}
		logChanges(p.logger, before, now, set)
		p.board.post(now)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func readOnce(ctx context.Context, reader Reader, before inventory, set settings) inventory {
	ctx, cancel := context.WithTimeout(ctx, set.pollTimeout)
	defer cancel()
	snapshot, err := reader.Snapshot(ctx)
	return before.after(snapshot, err, set, time.Now())
}

// logChanges tells the operator once about each thing that changed.
func logChanges(logger hclog.Logger, before, now inventory, set settings) {
	logFault(logger, before.fault, now.fault, set)
	for _, g := range now.offered {
		known, isKnown := before.find(g.id())
		gpuLog := logger.With("gpu", g.UUID, "model", g.Name)
		if !isKnown {
			logOffer(gpuLog, g, set)
		}
		switch {
		case known.health == g.health || now.fault != nil:
		case g.health == "":
			gpuLog.Info("GPU can be used again", "units", g.units)
		default:
			gpuLog.Warn("GPU cannot be used; its units are unhealthy", "reason", g.health)
		}
	}
	reasons := map[string]string{}
	for _, g := range before.refused {
		reasons[g.UUID] = g.health
	}
	for _, g := range now.refused {
		if reasons[g.UUID] != g.health {
			logger.Warn("GPU is not offered", "gpu", g.UUID, "model", g.Name, "reason", g.health)
		}
	}
}

func logOffer(logger hclog.Logger, g gpu, set settings) {
	logger.Info("GPU is offered", "memory_mib", g.Memory.TotalMiB, "reserved_mib", g.reservedMiB,
		"memory_unit", set.unitText, "units", g.units)
	if g.PersistenceMode != nil && !*g.PersistenceMode {
		logger.Warn("persistence mode is off: the driver starts the GPU anew when nothing uses it, which takes seconds")
	}
}

func logFault(logger hclog.Logger, before, now error, set settings) {
	switch {
	case now != nil && (before == nil || before.Error() != now.Error()):
		logger.Warn("GPUs cannot be read; trying again", "nvml_library", orDefault(set.library, nvml.DefaultLibrary),
			"poll_interval", set.pollInterval, "error", now)
	case now == nil && before != nil:
		logger.Info("GPUs can be read again")
	}
}
