// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

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

// home is what is known of the node that the plugin works on. Nobody tells a task driver
// that: Nomad's ID and name of the node come with each task, and so do GPUs that are
// surely here. The ID is kept over restarts, for then there may be no task to tell it.
type home struct {
	host allocator.NodeName // as the device plugin names the node in the table
	path string             // of the file with the ID
	// unread is why the file could not be read, for the log. The ID is then known once a task tells it.
	unread error

	mu     sync.Mutex
	id     allocator.NodeID   // empty until known
	name   allocator.NodeName // likewise, as Nomad has it
	booked map[allocator.GPUID]bool
}

// openHome reads what an earlier process learned.
func openHome(stateDir string) *home {
	h := &home{path: filepath.Join(stateDir, "node_id"), booked: map[allocator.GPUID]bool{}}
	host, _ := os.Hostname() // without it only GPUs with tasks are known
	h.host = allocator.NodeName(host)
	h.id, h.unread = readNodeID(h.path)
	return h
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

// learn takes in what a task tells: where it is, and which GPUs were booked for it.
func (h *home) learn(owner allocator.Owner, gpus []allocator.GPUID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, gpu := range gpus {
		h.booked[gpu] = true
	}
	if owner.NodeName != "" {
		h.name = owner.NodeName
	}
	if owner.Node == "" || owner.Node == h.id {
		return
	}
	h.id = owner.Node
	_ = writeNodeID(h.path, h.id) // else the next process learns it from its first task
}

// nodeID is Nomad's ID of the node; empty until known.
func (h *home) nodeID() allocator.NodeID {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.id
}

// gpus are the node's: those that tasks were booked on, and those that its device plugin
// lists.
func (h *home) gpus(listed []allocator.GPUID) []allocator.GPUID {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := maps.Clone(h.booked)
	for _, gpu := range listed {
		all[gpu] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// whose tells whether a claim on a GPU of this node is a task's of this node.
type whose int

const (
	unknown  whose = iota // it cannot be told, or nobody here has to care
	own                   // it is this node's
	anothers              // it is another node's, on a GPU that is here
)

// whose judges a claim. Two nodes may have one host name, and then each is told of the
// other's GPUs: so a name proves something only on a GPU that was booked here, where a
// claim with another ID is from before the node was registered anew.
func (h *home) whose(gpu allocator.GPUID, claim allocator.Claim) whose {
	h.mu.Lock()
	defer h.mu.Unlock()
	sameName := claim.IsOn(h.name) || h.name == "" && claim.IsOn(h.host)
	switch {
	case claim.State != allocator.Claimed && claim.State != allocator.Running:
		return unknown // a person's, or a planner's
	case claim.Node != "" && claim.Node == h.id:
		return own
	case h.booked[gpu] && (claim.Node == "" || sameName):
		return own
	case h.id != "" && claim.Node != "" && (h.booked[gpu] || sameName):
		return anothers
	default:
		return unknown
	}
}
