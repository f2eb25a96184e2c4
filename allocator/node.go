// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

// NodeID is Nomad's ID of a node. It changes if the agent loses its data_dir and registers
// again.
type NodeID string

// NodeName is the host name of a node, the key of its state in the table. Two machines may
// have the same one: see ErrSharedName.
type NodeName string
