// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package logpipe

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/statefile"
)

// Checkpoints keep, over restarts of the plugin, how far the output of each attempt was
// copied: one file each under <state_dir>/logs, which only root can reach. A task cannot
// touch them, unlike anything in its allocation's directory. A file is removed with the
// attempt's record in the journal.
type Checkpoints struct{ dir string }

// OpenCheckpoints returns those of a state_dir. It reads nothing yet.
func OpenCheckpoints(stateDir string) Checkpoints {
	return Checkpoints{filepath.Join(stateDir, "logs")}
}

// Open returns where to continue: the beginning if nothing was saved of this container,
// and also together with an error. There is no checkpoint to save to if the error matches statefile.ErrNewer.
func (c Checkpoints) Open(attempt, container string) (*Checkpoint, docker.LogPosition, error) {
	var begin docker.LogPosition
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return nil, begin, err
	}
	file, err := os.OpenFile(c.path(attempt), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, begin, err
	}
	opened := &Checkpoint{file: file, container: container}
	position, err := opened.read()
	if errors.Is(err, statefile.ErrNewer) {
		opened.Close()
		return nil, begin, err
	}
	return opened, position, err
}

// Remove forgets an attempt. One that has no checkpoint is fine.
func (c Checkpoints) Remove(attempt string) error {
	if err := removeCheckpoint(c.path(attempt)); err != nil {
		return fmt.Errorf("cannot remove the log checkpoint of a finished task: %w", err)
	}
	return nil
}

// removeCheckpoint removes a file, unless it is of a newer version.
func removeCheckpoint(path string) error {
	if statefile.KeepNewer(path) != nil {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Sweep removes what attempts have left that the journal no longer has. The journal is
// listed after the files: an attempt is recorded before it has a checkpoint.
func (c Checkpoints) Sweep(recorded func() (ids []string, err error)) error {
	entries, err := os.ReadDir(c.dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	ids, err := recorded()
	if err != nil {
		return nil // an unreadable record may be of any attempt; the sweep of the journal reports it
	}
	keep := map[string]bool{}
	for _, id := range ids {
		keep[filepath.Base(c.path(id))] = true
	}
	var failed []error
	for _, entry := range entries {
		if keep[entry.Name()] {
			continue
		}
		failed = append(failed, removeCheckpoint(filepath.Join(c.dir, entry.Name())))
	}
	return errors.Join(failed...)
}

// path escapes an attempt's ID, which has slashes. An ID that is too long for a file's
// name, by that of its task, is replaced by its hash.
func (c Checkpoints) path(attempt string) string {
	const longest = 200
	name := url.PathEscape(attempt)
	if len(name) > longest {
		sum := sha256.Sum256([]byte(attempt))
		name = hex.EncodeToString(sum[:])
	}
	return filepath.Join(c.dir, name+".json")
}

// Checkpoint is an open file of Checkpoints.
//
// It is written after each delivery into the pipes, in place and with one call: a
// plugin that is killed repeats one delivery at most, of whole lines.
type Checkpoint struct {
	file      *os.File
	container string
}

const (
	checkpointSize = 512       // of the file: the record, and blanks
	checkpointMost = 64 * 1024 // of the file of another version
)

// checkpointText is the file's content.
type checkpointText struct {
	Version   int                `json:"version"`
	Container string             `json:"container"`
	Position  docker.LogPosition `json:"position"`
}

func (c *Checkpoint) read() (position docker.LogPosition, err error) {
	text, err := io.ReadAll(io.LimitReader(c.file, checkpointMost))
	if err != nil || len(text) == 0 {
		return position, err
	}
	if err := statefile.CheckVersion(c.file.Name(), text); err != nil {
		return position, err
	}
	var saved checkpointText
	if err := json.Unmarshal(text, &saved); err != nil {
		return position, fmt.Errorf("%s: %w", c.file.Name(), err)
	}
	if saved.Container != c.container {
		return position, nil
	}
	return saved.Position, nil
}

// Save replaces what was saved.
func (c *Checkpoint) Save(position docker.LogPosition) error {
	text, err := json.Marshal(checkpointText{statefile.Version, c.container, position})
	if err != nil {
		return err
	}
	if len(text) >= checkpointSize {
		return errors.New("log checkpoint is too long")
	}
	for len(text) < checkpointSize-1 {
		text = append(text, ' ')
	}
	_, err = c.file.WriteAt(append(text, '\n'), 0)
	return err
}

// Close closes the file.
func (c *Checkpoint) Close() { _ = c.file.Close() }
