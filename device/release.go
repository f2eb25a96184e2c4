// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"time"

	"nomad-gpu-mem/allocator"
)

// release replaces a reading: the NVML session, which keeps all GPUs of the node open, is
// closed while one of them waits for a reset.
type release struct {
	err error // why the session cannot be closed, or nil
}

// wantsRelease reports whether an operator asked for the release of one of the GPUs.
func (t tableView) wantsRelease() bool {
	for _, entry := range t {
		if entry.Cordon != nil && entry.Cordon.Release {
			return true
		}
	}
	return false
}

// readOrRelease reads the GPUs, or closes the session.
func readOrRelease(reader Reader, read func() reading, known tableView) reading {
	if known.wantsRelease() {
		return reading{at: time.Now(), release: &release{err: reader.Release()}}
	}
	return read()
}

// released is the inventory while the session is closed: GPUs as they were last read, with
// current cordons.
func (i inventory) released(r reading) inventory {
	next := i
	next.readAt, next.xids = r.at, nil
	next.offered, next.refused = nil, nil
	for _, g := range i.offered {
		next.offered = append(next.offered, g.letGo(r.table[g.id()].Cordon, r.release))
	}
	for _, g := range i.refused {
		next.refused = append(next.refused, g.letGo(r.table[g.id()].Cordon, r.release))
	}
	return next
}

func (g gpu) letGo(c *allocator.Cordon, r *release) gpu {
	switch {
	case c == nil:
		return g
	case c.Release && r.err != nil:
		return g.unusable(cordoned(*c) + "; cannot release the GPU: " + r.err.Error())
	case c.Release:
		return g.unusable(cordoned(*c) + "; released: the GPU can be reset now")
	case g.health == "":
		return g.unusable(cordoned(*c))
	}
	return g
}
