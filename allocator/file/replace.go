// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package file

import (
	"errors"
	"os"
	"path/filepath"
)

// replace replaces the content of the file by text, or leaves it unchanged. The caller must
// hold the lock. The next content always has the same name, so the next call overwrites the
// one that a killed process left.
func replace(path string, text []byte) error {
	next := path + ".next"
	if err := write(next, text); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	// Without this a power failure may restore the old content after callers acted on the
	// new one.
	return syncDir(filepath.Dir(path))
}

func write(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	// Chmod sets the mode again, since the umask may have reduced it.
	return errors.Join(err, f.Chmod(fileMode), f.Sync(), f.Close())
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
