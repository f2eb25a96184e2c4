// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

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
)

// checkpoints keep, over restarts of the plugin, how far the output of each attempt was
// copied: one file each under <state_dir>/logs, which only root can reach. A task cannot
// touch them, unlike anything in its allocation's directory. A file is removed with the
// attempt's record in the journal.
type checkpoints struct{ dir string }

func openCheckpoints(stateDir string) checkpoints {
	return checkpoints{filepath.Join(stateDir, "logs")}
}

// open returns where to continue: the beginning if nothing was saved of this container,
// and also together with an error. There is no checkpoint to save to if the error matches errNewer.
func (c checkpoints) open(attempt, container string) (*checkpoint, docker.LogPosition, error) {
	var begin docker.LogPosition
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return nil, begin, err
	}
	file, err := os.OpenFile(c.path(attempt), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, begin, err
	}
	opened := &checkpoint{file: file, container: container}
	position, err := opened.read()
	if errors.Is(err, errNewer) {
		opened.close()
		return nil, begin, err
	}
	return opened, position, err
}

// remove forgets an attempt. One that has no checkpoint is fine.
func (c checkpoints) remove(attempt string) error {
	if err := removeCheckpoint(c.path(attempt)); err != nil {
		return fmt.Errorf("cannot remove the log checkpoint of a finished task: %w", err)
	}
	return nil
}

// removeCheckpoint removes a file, unless it is of a newer version.
func removeCheckpoint(path string) error {
	if keepNewer(path) != nil {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// sweep removes what attempts have left that the journal no longer has. The journal is
// listed after the files: an attempt is recorded before it has a checkpoint.
func (c checkpoints) sweep(recorded func() (ids []string, err error)) error {
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
func (c checkpoints) path(attempt string) string {
	const longest = 200
	name := url.PathEscape(attempt)
	if len(name) > longest {
		sum := sha256.Sum256([]byte(attempt))
		name = hex.EncodeToString(sum[:])
	}
	return filepath.Join(c.dir, name+".json")
}

// checkpoint is an open file of checkpoints.
//
// It is written after each delivery into the pipes, in place and with one call: a
// plugin that is killed repeats one delivery at most, of whole lines.
type checkpoint struct {
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

func (c *checkpoint) read() (position docker.LogPosition, err error) {
	text, err := io.ReadAll(io.LimitReader(c.file, checkpointMost))
	if err != nil || len(text) == 0 {
		return position, err
	}
	if err := checkVersion(c.file.Name(), text); err != nil {
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

func (c *checkpoint) save(position docker.LogPosition) error {
	record, err := json.Marshal(checkpointText{recordVersion, c.container, position})
	if err != nil {
		return err
	}
	if len(record) >= checkpointSize {
		return errors.New("log checkpoint is too long")
	}
	for len(record) < checkpointSize-1 {
		record = append(record, ' ')
	}
	_, err = c.file.WriteAt(append(record, '\n'), 0)
	return err
}

func (c *checkpoint) close() { _ = c.file.Close() }
