// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

// NodeID is the ID that Nomad has given a node. A node that is registered again after its
// agent has lost its data_dir has another one.
type NodeID string

// NodeName is the host name of a node, under which its device plugin writes to the table.
// Two machines may have the same one: see ErrSharedName.
type NodeName string
