// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"sync"
)

// decoder decodes entries of the store into records, and caches them: between two reads of a
// large table only a few values change.
type decoder struct {
	mu    sync.Mutex
	known map[string]record // cache, by key
}

// record is a value of the table, decoded.
type record struct {
	key   string
	bytes []byte // the encoded value
	gpu   GPUID
	value any // *NodeState, *GPUState, *Ledger, *Cordon, leaseOf or nil
	err   error
}

// leaseOf is the name of a node that has a lease.
type leaseOf NodeName

// decode returns a record for each entry. It compares values as bytes, not by their
// versions: a store that was recreated reuses versions.
func (d *decoder) decode(entries []Entry) []record {
	d.mu.Lock()
	known := d.known // replaced, never changed
	d.mu.Unlock()

	records := make([]record, len(entries))
	perWorker := max(1, (len(entries)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	var workers sync.WaitGroup
	first := 0
	for chunk := range slices.Chunk(entries, perWorker) {
		out := records[first:]
		first += len(chunk)
		workers.Go(func() {
			for i, entry := range chunk {
				if old, seen := known[entry.Key]; seen && bytes.Equal(old.bytes, entry.Value) {
					out[i] = old
				} else {
					out[i] = newRecord(entry)
				}
			}
		})
	}
	workers.Wait()

	now := make(map[string]record, len(records))
	for _, record := range records {
		now[record.key] = record
	}
	d.mu.Lock()
	d.known = now
	d.mu.Unlock()
	return records
}

// newRecord decodes an entry. Unknown keys get no value: they may belong to a newer version.
func newRecord(entry Entry) record {
	r := record{key: entry.Key, bytes: entry.Value}
	if name, ok := parseNodeKey(entry.Key); ok {
		if node, err := decodeNode(name, entry.Value); err != nil {
			r.err = err
		} else {
			r.value = &node
		}
		return r
	}
	if node, ok := parseLeaseKey(entry.Key); ok {
		r.value = leaseOf(node)
		return r
	}
	if _, ok := parseProfileKey(entry.Key); ok {
		_, r.err = decodeState[Profile](entry.Value)
		return r
	}
	gpu, suffix, ok := parseGPUKey(entry.Key)
	if !ok {
		return r
	}
	r.gpu = gpu
	switch suffix {
	case stateSuffix:
		state, err := decodeState[GPUState](entry.Value)
		r.value, r.err = &state, err
	case claimsSuffix:
		r.value, r.err = DecodeLedger(entry.Value) // a nil *Ledger if it cannot be read
	case cordonSuffix:
		r.value = decodeCordon(entry.Value)
	}
	if r.err != nil {
		r.err = fmt.Errorf("GPU %s: %w", gpu, r.err)
	}
	return r
}
