// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package file

import (
	"errors"
	"os"
	"path/filepath"
)

// replace makes text the content of the file, or leaves the file as it is. Only
// the holder of the lock may call it: the next content always has the same
// name, so one that a killed process left is overwritten.
func replace(path string, text []byte) error {
	next := path + ".next"
	if err := write(next, text); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	// Without this a power cut may bring the old content back after the new
	// one was acted upon.
	return syncDir(filepath.Dir(path))
}

func write(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	// The mode is set again since the process may have a tighter umask.
	return errors.Join(err, f.Chmod(fileMode), f.Sync(), f.Close())
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
