// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package taskfile

import (
	"os"

	"golang.org/x/sys/unix"
)

// Pipe opens a FIFO for writing. Without a reader the error matches ENXIO: it does not wait for one.
func (d *Dir) Pipe(path string) (*os.File, error) {
	found, err := d.find(path)
	if err != nil {
		return nil, err
	}
	defer found.close()
	if found.kind() != unix.S_IFIFO {
		return nil, found.refuse("a FIFO")
	}
	return found.reopen(unix.O_WRONLY)
}
