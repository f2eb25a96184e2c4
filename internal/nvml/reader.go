// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// DefaultLibrary is the library's name for the dynamic linker to find.
const DefaultLibrary = "libnvidia-ml.so.1"

// Reader reads all GPUs of the node. It holds one NVML session, opened by the first snapshot
// that finds a driver: opening one for each reading would wake every GPU. It is safe for
// concurrent use.
type Reader struct {
	session session

	turn chan struct{} // a lock of the fields below, with one token
	node lane[nodeReading]
	gpus []*slot
	seen map[int][]GPU // by index: the GPUs of the last good reading
	xids xidWatch
}

// NewReader returns a Reader for the library at path, or the one that the dynamic linker finds
// if path is empty. It loads nothing yet.
func NewReader(path string, options ...Option) *Reader {
	if path == "" {
		path = DefaultLibrary
	}
	r := &Reader{
		session: session{path: path, library: &library{Interface: nvml.New(nvml.WithLibraryPath(path)), sysfs: "/sys"}},
		turn:    make(chan struct{}, 1),
		seen:    map[int][]GPU{},
		xids:    xidWatch{inbox: &xidInbox{}},
	}
	for _, option := range options {
		option(r)
	}
	return r
}

// Option changes how a Reader works.
type Option func(*Reader)

// WithSysfs makes the Reader use another directory than /sys.
func WithSysfs(dir string) Option { return func(r *Reader) { r.session.library.sysfs = dir } }

// Snapshot reads every GPU. It returns when all have answered or when ctx
// ends, whichever is first; a GPU that has not answered by ctx's deadline has
// an error that matches ErrHung.
//
// The error is about the node: the library cannot be loaded, the driver is not loaded, or NVML
// hangs. The next call may succeed. If ctx was cancelled, it is ctx's error.
func (r *Reader) Snapshot(ctx context.Context) (*Snapshot, error) {
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-r.turn }()

	node, err := r.readNode(ctx)
	if err != nil {
		return nil, err
	}
	gpus := r.readGPUs(ctx, node.gpus)
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, ctx.Err()
	}
	r.xids.follow(r.session.library, listening(gpus))
	s := &Snapshot{DriverVersion: node.driver, CUDAVersion: node.cuda, GPUs: gpus}
	s.Xids, s.XidsErr = r.xids.inbox.fetch()
	return s, nil
}

// listening returns the physical GPUs that can report Xids: those that answer, and slow ones. A
// lost GPU is excluded, so that it is registered again when it returns.
func listening(gpus []GPU) []string {
	var uuids []string
	for _, gpu := range gpus {
		if gpu.UUID != "" && gpu.Parent == "" && (gpu.Err == nil || errors.Is(gpu.Err, ErrHung)) {
			uuids = append(uuids, gpu.UUID)
		}
	}
	return uuids
}

// closeTimeout bounds how long Release waits for NVML.
const closeTimeout = 2 * time.Second

// Close ends the NVML session. If a call is stuck in it, the session lasts until the process
// ends.
func (r *Reader) Close() { _ = r.Release() }

// Release ends the NVML session, which keeps every GPU open, so that a GPU can be
// reset. The next snapshot opens another one. The error matches ErrHung if a call
// is stuck in the session.
func (r *Reader) Release() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	if !r.endSession(ctx) {
		return fmt.Errorf("cannot end the NVML session: %w", ErrHung)
	}
	return nil
}

// endSession ends the session, but not under a call. It reports whether it has ended.
func (r *Reader) endSession(ctx context.Context) bool {
	if !r.xids.endWithin(ctx) || r.node.busy() || r.gpusBusy() {
		return false
	}
	r.node.start(ctx, r.session.library, func(*probe) nodeReading {
		r.session.end()
		return nodeReading{}
	})
	_, err := r.node.wait(ctx)
	r.gpus = nil // the next session may find other GPUs, or another driver
	return err == nil
}

// readNode opens the session if needed and reads the values of the node. Any failure ends the
// session, so that a reloaded driver is found again.
func (r *Reader) readNode(ctx context.Context) (nodeReading, error) {
	r.node.start(ctx, r.session.library, func(p *probe) nodeReading {
		if err := r.session.begin(p); err != nil {
			return nodeReading{err: err}
		}
		return readNode(p)
	})
	node, err := r.node.wait(ctx)
	if err == nil {
		err = node.err
	}
	if err != nil {
		r.endSession(ctx)
	}
	return node, err
}

func (r *Reader) gpusBusy() bool {
	return slices.ContainsFunc(r.gpus, (*slot).busy)
}

// readGPUs reads all GPUs concurrently, so that a slow one does not delay the others.
func (r *Reader) readGPUs(ctx context.Context, count int) []GPU {
	for len(r.gpus) < count {
		r.gpus = append(r.gpus, &slot{index: len(r.gpus)})
	}
	for _, slot := range r.gpus[:count] {
		slot.start(ctx, r.session.library, slot.read)
	}
	var gpus []GPU
	for i, slot := range r.gpus[:count] {
		read, err := slot.wait(ctx)
		if err != nil {
			read = []GPU{{Index: i, Err: err}}
		}
		gpus = append(gpus, r.remember(i, read)...)
	}
	return dropMoved(gpus)
}

// remember records the GPU at an index, and adds its identity to a failure without one.
func (r *Reader) remember(index int, read []GPU) []GPU {
	physical := read[0]
	if physical.Err == nil {
		r.seen[index] = read
		return read
	}
	var failed []GPU
	for _, gpu := range r.seen[index] {
		if physical.UUID == "" || physical.UUID == gpu.UUID || physical.UUID == gpu.Parent {
			failed = append(failed, gpu.failed(physical.Err))
		}
	}
	if failed == nil {
		return read
	}
	return failed
}

// dropMoved drops failures of GPUs that were read at another index: when a GPU is lost, those
// behind it move up.
func dropMoved(gpus []GPU) []GPU {
	well := map[string]bool{}
	for _, gpu := range gpus {
		if gpu.Err == nil {
			well[gpu.UUID] = true
		}
	}
	var kept []GPU
	for _, gpu := range gpus {
		if gpu.Err == nil || !well[gpu.UUID] {
			kept = append(kept, gpu)
		}
	}
	return kept
}
