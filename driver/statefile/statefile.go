// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package statefile keeps the versions of the JSON files in the task driver's state_dir: what an older plugin must
// neither misread nor overwrite.
package statefile

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// Version is the version of the JSON records that this plugin writes, and the highest it reads. A
// record without a version is of version 1. A new field does not raise it; a change that an older plugin would misread
// does. The files of tenancy are not records: they are locks, and a number that names a process.
const Version = 1

// ErrNewer is returned for a record of a newer version. Such a record is never overwritten or removed, so that the
// newer plugin finds it after the next upgrade.
var ErrNewer = errors.New("written by a newer version, upgrade the plugin")

// CheckVersion returns ErrNewer for the text of a record that this plugin must not interpret. Whether other text is a
// record is left to the caller.
func CheckVersion(path string, text []byte) error {
	var head struct {
		Version int `json:"version"`
	}
	if json.Unmarshal(text, &head) == nil && head.Version > Version {
		return fmt.Errorf("%s: %w: it has version %d, this plugin reads up to %d", path, ErrNewer, head.Version, Version)
	}
	return nil
}

// KeepNewer returns ErrNewer if there is a record of a newer version at the path. A file that cannot be read is none.
func KeepNewer(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return CheckVersion(path, text)
}
