package nvml

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Xid is an error that the driver reported of a GPU by itself. NVIDIA's "Xid
// Errors" lists the codes.
type Xid struct {
	UUID string // of the physical GPU
	Code uint64

	// GPUInstance is the MIG GPU instance that it is about, or nil if it is
	// about the whole GPU.
	GPUInstance *int
}

func (x Xid) String() string { return fmt.Sprintf("Xid %d", x.Code) }

// waitXid is how long one call waits for an event. It bounds what the end of
// a session has to wait for.
const waitXid = time.Second

// xidWatch waits for Xids in a goroutine of its own: of several that come while
// nobody waits, NVML tells the last code only, and the first is often the one
// that matters. Its fields belong to whose turn it is at the Reader; inbox is
// shared with the goroutine.
type xidWatch struct {
	inbox *xidInbox
	gpus  []string           // UUIDs that are watched and have answered ever since
	stop  context.CancelFunc // nil if nothing is watched
	done  chan struct{}      // closed when the goroutine has ended
}

// xidInbox is what was heard and not yet fetched.
type xidInbox struct {
	mu      sync.Mutex
	xids    []Xid
	refused error
}

// follow watches these GPUs from now on. When one is new, or back, the watch
// begins anew: with this call if the old one has ended, else with a later one.
func (w *xidWatch) follow(library *library, gpus []string) {
	isNew := func(gpu string) bool { return !slices.Contains(w.gpus, gpu) }
	if w.stop != nil && !slices.ContainsFunc(gpus, isNew) {
		w.gpus = gpus
		return
	}
	if !w.end() || len(gpus) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.gpus, w.stop, w.done = gpus, cancel, make(chan struct{})
	go func(inbox *xidInbox, done chan<- struct{}) {
		defer close(done)
		inbox.refuse(watchXids(&probe{ctx: ctx, library: library}, gpus, inbox))
	}(w.inbox, w.done)
}

func (w *xidWatch) running() bool {
	if w.stop == nil {
		return false
	}
	select {
	case <-w.done:
		return false
	default:
		return true
	}
}

// end stops the watch and reports whether it has ended.
func (w *xidWatch) end() bool {
	if w.stop == nil {
		return true
	}
	w.stop()
	if w.running() {
		return false
	}
	w.stop, w.gpus = nil, nil
	return true
}

// endWithin is end with patience.
func (w *xidWatch) endWithin(ctx context.Context) bool {
	if w.end() {
		return true
	}
	select {
	case <-w.done:
	case <-ctx.Done():
	}
	return w.end()
}

// fetch returns what was heard since the last call, and why Xids cannot be had
// of some GPU, or nil.
func (i *xidInbox) fetch() ([]Xid, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	xids := i.xids
	i.xids = nil
	return xids, i.refused
}

func (i *xidInbox) put(x Xid) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.xids = append(i.xids, x)
}

func (i *xidInbox) refuse(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.refused = err
}

// watchXids puts the GPUs' Xids into the inbox until the probe's context ends.
// Its error says why there can be none.
func watchXids(p *probe, gpus []string, inbox *xidInbox) error {
	set, err := query(p, "nvmlEventSetCreate", p.library.EventSetCreate)
	if err != nil {
		return err
	}
	if p.library.has("nvmlEventSetFree") {
		defer func() { _ = p.library.EventSetFree(set) }()
	}
	watched := map[nvml.Device]string{}
	var refused error
	for _, uuid := range gpus {
		handle, err := register(p, set, uuid)
		if err != nil {
			refused = errors.Join(refused, fmt.Errorf("GPU %s: %w", uuid, err))
			continue
		}
		watched[handle] = uuid
	}
	inbox.refuse(refused)
	for len(watched) > 0 && p.ctx.Err() == nil {
		event, err := query(p, "nvmlEventSetWait_v2", func() (nvml.EventData, nvml.Return) {
			return p.library.EventSetWait(set, uint32(waitXid.Milliseconds()))
		})
		switch {
		case err == nil && event.EventType == nvml.EventTypeXidCriticalError && event.EventData != 0:
			inbox.put(Xid{UUID: watched[event.Device], Code: event.EventData, GPUInstance: gpuInstance(event)})
		case err == nil, hasCode(err, nvml.ERROR_TIMEOUT):
		case hasCode(err, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_UNINITIALIZED):
			return err
		default:
			rest(p.ctx) // a lost GPU makes every call return at once
		}
	}
	return refused
}

// register subscribes to a GPU's Xids, if it can tell any.
func register(p *probe, set nvml.EventSet, uuid string) (nvml.Device, error) {
	handle, err := query(p, "nvmlDeviceGetHandleByUUID", func() (nvml.Device, nvml.Return) {
		return p.library.DeviceGetHandleByUUID(uuid)
	})
	if err != nil {
		return nil, err
	}
	_, err = query(p, "nvmlDeviceRegisterEvents", func() (struct{}, nvml.Return) {
		return struct{}{}, handle.RegisterEvents(nvml.EventTypeXidCriticalError, set)
	})
	return handle, err
}

// gpuInstance is nil where NVML says with all bits set that there is none.
func gpuInstance(event nvml.EventData) *int {
	if event.GpuInstanceId == ^uint32(0) {
		return nil
	}
	id := int(event.GpuInstanceId)
	return &id
}

func rest(ctx context.Context) {
	timer := time.NewTimer(waitXid)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
