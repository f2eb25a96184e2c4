package driver

import (
	"maps"
	"slices"
	"sync"

	"nomad-gpu-mem/allocator"
)

// ownGPUs are the GPUs that are known to be this node's: those that tasks were booked
// on here. Nobody tells a task driver of the others.
type ownGPUs struct {
	mu  sync.Mutex
	set map[allocator.GPUID]bool
}

func (o *ownGPUs) add(gpus []allocator.GPUID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.set == nil {
		o.set = map[allocator.GPUID]bool{}
	}
	for _, gpu := range gpus {
		o.set[gpu] = true
	}
}

func (o *ownGPUs) all() []allocator.GPUID {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(maps.Keys(o.set))
}
