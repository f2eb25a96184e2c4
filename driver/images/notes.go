// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package images

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"

	"nomad-gpu-mem/driver/statefile"
)

// Notes keeps the IDs of images over restarts, in <state_dir>/images.json. It is
// not synced to the disk: a crash of the machine costs no more than an image that stays.
type Notes struct{ path string }

// NotesIn returns the notes in a state_dir.
func NotesIn(stateDir string) Notes {
	return Notes{filepath.Join(stateDir, "images.json")}
}

// notesText is the file's content.
type notesText struct {
	Version int      `json:"version"`
	Images  []string `json:"images"`
}

// Read returns what was written last; nothing if nothing was.
func (n Notes) Read() ([]string, error) {
	text, err := os.ReadFile(n.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := statefile.CheckVersion(n.path, text); err != nil {
		return nil, err
	}
	var notes notesText
	if err := json.Unmarshal(text, &notes); err != nil {
		return nil, fmt.Errorf("%s: %w", n.path, err)
	}
	return notes.Images, nil
}

// Write replaces the notes, unless they are of a newer version.
func (n Notes) Write(images iter.Seq[string]) error {
	if err := statefile.KeepNewer(n.path); err != nil {
		return err
	}
	text, err := json.Marshal(notesText{statefile.Version, slices.Sorted(images)})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(n.path), 0o700)
	}
	if err == nil {
		err = os.WriteFile(n.path+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(n.path+".new", n.path)
	}
	return err
}
