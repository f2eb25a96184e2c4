// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package attempt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/google/renameio/v2"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/statefile"
)

// NodeIdentity is what the driver has learned about its own node. Nomad passes a task driver no node ID: ID, name and GPUs arrive
// with each task. The ID is saved in state_dir, so that it is known after a restart without tasks.
type NodeIdentity struct {
	Host allocator.NodeName // as the device plugin names the node in the table
	path string             // of the file with the ID

	mu     sync.Mutex
	id     allocator.NodeID   // empty until known
	name   allocator.NodeName // likewise, as Nomad has it
	booked map[allocator.GPUID]bool
}

// OpenNode reads what an earlier process learned. With an error, the ID is unknown until a task names it.
func OpenNode(stateDir string) (*NodeIdentity, error) {
	n := &NodeIdentity{path: filepath.Join(stateDir, "node_id"), booked: map[allocator.GPUID]bool{}}
	host, _ := os.Hostname() // without it only GPUs with tasks are known
	n.Host = allocator.NodeName(host)
	id, err := readNodeID(n.path)
	n.id = id
	return n, err
}

// nodeIDText is the content of the file with the ID.
type nodeIDText struct {
	Version int              `json:"version"`
	ID      allocator.NodeID `json:"id"`
}

// readNodeID returns the ID in a file, or none if there is no file. The first format was the ID and no more.
func readNodeID(path string) (allocator.NodeID, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if !bytes.HasPrefix(text, []byte("{")) {
		return allocator.NodeID(strings.TrimSpace(string(text))), nil
	}
	if err := statefile.CheckVersion(path, text); err != nil {
		return "", err
	}
	var saved nodeIDText
	if err := json.Unmarshal(text, &saved); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return saved.ID, nil
}

// writeNodeID replaces the file, unless it is of a newer version.
func writeNodeID(path string, id allocator.NodeID) error {
	if err := statefile.KeepNewer(path); err != nil {
		return err
	}
	text, err := json.Marshal(nodeIDText{statefile.Version, id})
	if err != nil {
		return err
	}
	return renameio.WriteFile(path, append(text, '\n'), 0o600)
}

// Learn notes the node that a task names, and the GPUs that were booked for it.
func (n *NodeIdentity) Learn(owner allocator.Owner, gpus []allocator.GPUID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, gpu := range gpus {
		n.booked[gpu] = true
	}
	if owner.NodeName != "" {
		n.name = owner.NodeName
	}
	if owner.Node == "" || owner.Node == n.id {
		return
	}
	n.id = owner.Node
	_ = writeNodeID(n.path, n.id) // if this fails, the next process learns the ID from its first task
}

// ID returns Nomad's ID of the node, or "" until it is known.
func (n *NodeIdentity) ID() allocator.NodeID {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.id
}

// gpus returns the node's GPUs: those booked for tasks, and those that the device plugin lists.
func (n *NodeIdentity) gpus(listed []allocator.GPUID) []allocator.GPUID {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := maps.Clone(n.booked)
	for _, gpu := range listed {
		all[gpu] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// Ownership says which node a claim on a GPU belongs to.
type Ownership int

// The results of NodeIdentity.Ownership.
const (
	Unknown Ownership = iota // not known, or no task's
	Ours                     // this node's
	Foreign                  // another node's, on a GPU of this node
)

// Ownership reports which node a claim belongs to. Host names are not unique, and nodes with equal names see each other's GPUs.
// So a matching name is trusted only for GPUs booked on this node: there, a different node ID means that the node was registered
// again since.
func (n *NodeIdentity) Ownership(gpu allocator.GPUID, claim allocator.Claim) Ownership {
	n.mu.Lock()
	defer n.mu.Unlock()
	sameName := claim.IsOn(n.name) || n.name == "" && claim.IsOn(n.Host)
	switch {
	case claim.State != allocator.Claimed && claim.State != allocator.Running:
		return Unknown // an operator's, or the planner's
	case claim.Node != "" && claim.Node == n.id:
		return Ours
	case n.booked[gpu] && (claim.Node == "" || sameName):
		return Ours
	case n.id != "" && claim.Node != "" && (n.booked[gpu] || sameName):
		return Foreign
	default:
		return Unknown
	}
}
