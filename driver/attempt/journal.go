// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package attempt

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"
	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/statefile"
)

// Journal records, over restarts of the plugin and of the machine, which attempts have not ended: one small JSON file each under
// <state_dir>/attempts. A record is written before anything is claimed or created, and deleted when the container is gone and the
// claim is released. Without it, a claim would leak whenever the plugin died in between.
type Journal struct{ dir string }

// Record is one start of a task and what it holds.
type Record struct {
	ID    string            `json:"id"` // Nomad's task config ID, new for each start
	Owner allocator.Owner   `json:"owner"`
	GPUs  []allocator.GPUID `json:"gpus,omitempty"`
	// Units are the units on each of GPUs. A record of an older version has none.
	Units map[allocator.GPUID]allocator.UnitSet `json:"units,omitempty"`
	Begun time.Time                             `json:"begun"`
	// Boot is the ID of the machine's boot in which the attempt began. Empty: not known.
	Boot string `json:"boot,omitempty"`
	// Engine is the ID of the Docker engine that has the container. Empty: not known.
	Engine string `json:"engine,omitempty"`
	// Container is the ID of the container if it carries none of our labels, since Nomad's
	// own driver made it.
	Container string `json:"container,omitempty"`
	Over      bool   `json:"over"` // the task has ended: remove the container, release the claim
	// Ended is when that was known first.
	Ended time.Time `json:"ended,omitzero"`
	// Released: the container does not run and the claims are released; only the container
	// is still to be removed.
	Released bool `json:"released,omitempty"`
}

// NewRecord is a start of a task that has these bookings.
func NewRecord(task *drivers.TaskConfig, bookings []allocator.Booking, begun time.Time, engine string) Record {
	a := Record{ID: task.ID, Owner: OwnerOf(task), GPUs: allocator.GPUsOf(bookings), Begun: begun, Engine: engine}
	for _, b := range bookings {
		if a.Units == nil {
			a.Units = map[allocator.GPUID]allocator.UnitSet{}
		}
		a.Units[b.GPU] = b.Units
	}
	return a
}

// InTable is the attempt as the table knows it.
func (a Record) InTable() allocator.Attempt {
	return allocator.Attempt{ID: a.ID, Begun: a.Begun, Engine: a.Engine}
}

// OpenJournal reads nothing yet.
func OpenJournal(stateDir string) Journal { return Journal{filepath.Join(stateDir, "attempts")} }

// recordText is the content of a record.
type recordText struct {
	Version int `json:"version"`
	Record
}

// Write replaces the record of an attempt, unless that is of a newer version.
func (j Journal) Write(a Record) error {
	if err := statefile.KeepNewer(j.Path(a.ID)); err != nil {
		return err
	}
	text, err := json.Marshal(recordText{statefile.Version, a})
	if err == nil {
		err = os.MkdirAll(j.dir, 0o700)
	}
	if err == nil {
		err = renameio.WriteFile(j.Path(a.ID), text, 0o600, renameio.WithTempDir(j.dir))
	}
	return j.unwritable(err)
}

// probeSize is what a record may take. A full file system still takes empty files.
const probeSize = 4096

// Check fails if nothing could be written now.
func (j Journal) Check() error {
	err := os.MkdirAll(j.dir, 0o700)
	probe := filepath.Join(j.dir, ".writable")
	if err == nil {
		err = os.WriteFile(probe, make([]byte, probeSize), 0o600)
		err = cmp.Or(err, os.Remove(probe))
	}
	return j.unwritable(err)
}

func (j Journal) unwritable(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("tasks cannot be noted in state_dir, without which their claims could be lost: %w; "+
		"make %s writable or set state_dir", err, j.dir)
}

// tidyAge is how old a temporary file must be before it counts as the remains of an interrupted write.
const tidyAge = time.Hour

// tidy removes the remains of interrupted writes.
func (j Journal) tidy(now time.Time) error {
	entries, err := os.ReadDir(j.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	failed := []error{err}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || !info.Mode().IsRegular() || isRecord(entry.Name()) || now.Sub(info.ModTime()) < tidyAge {
			continue
		}
		failed = append(failed, os.Remove(filepath.Join(j.dir, entry.Name())))
	}
	return errors.Join(failed...)
}

func isRecord(name string) bool { return filepath.Ext(name) == ".json" }

// Remove deletes the record of an attempt, if there is one. A record of a newer version stays, and List reports it.
func (j Journal) Remove(id string) error {
	if statefile.KeepNewer(j.Path(id)) != nil {
		return nil
	}
	if err := os.Remove(j.Path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove the record of a finished task: %w", err)
	}
	return nil
}

// Read returns the record of an attempt, if there is one.
func (j Journal) Read(id string) (a Record, found bool, err error) {
	a, err = readAttempt(j.Path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, false, nil
	}
	return a, err == nil, err
}

// List returns the IDs of all attempts whose records can be read, and an error that
// names the other records.
func (j Journal) List() (ids []string, err error) {
	all, err := j.All()
	for _, a := range all {
		ids = append(ids, a.ID)
	}
	return ids, err
}

// All returns the records that can be read, and an error that names the others.
func (j Journal) All() (attempts []Record, err error) {
	entries, err := os.ReadDir(j.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var bad []error
	for _, entry := range entries {
		if !isRecord(entry.Name()) {
			continue // a temporary file
		}
		a, err := readAttempt(filepath.Join(j.dir, entry.Name()))
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
		case err != nil:
			bad = append(bad, err)
		default:
			attempts = append(attempts, a)
		}
	}
	return attempts, errors.Join(bad...)
}

// ErrDamaged is returned for a record that was read and is not one.
var ErrDamaged = errors.New("the record of a task is damaged")

func readAttempt(path string) (a Record, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return a, err
	}
	if err := statefile.CheckVersion(path, text); err != nil {
		return a, err
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return a, fmt.Errorf("%s: %w: %w", path, ErrDamaged, err)
	}
	if a.ID == "" || a.Owner.Alloc == "" {
		return a, fmt.Errorf("%s: %w: it names no task", path, ErrDamaged)
	}
	return a, nil
}

// Path is the file of an attempt's record.
func (j Journal) Path(id string) string {
	sum := sha256.Sum256([]byte(id))
	return filepath.Join(j.dir, hex.EncodeToString(sum[:12])+".json")
}

// OwnerOf names the task in the allocation table.
func OwnerOf(task *drivers.TaskConfig) allocator.Owner {
	return allocator.Owner{
		Namespace: task.Namespace,
		Job:       task.JobID,
		Group:     task.TaskGroupName,
		Task:      task.Name,
		Alloc:     task.AllocID,
		Node:      allocator.NodeID(task.NodeID),
		NodeName:  allocator.NodeName(task.NodeName),
	}
}
