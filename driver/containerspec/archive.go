// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/driver/taskfile"
)

// OpenArchive opens the image archive that a job names, in the task's local directory.
func OpenArchive(task *drivers.TaskConfig, name string) (io.ReadCloser, error) {
	if !filepath.IsLocal(name) {
		return nil, fmt.Errorf("config.load = %q is not a path in the task's local directory", name)
	}
	alloc, err := taskfile.OpenDir(task.AllocDir)
	if err != nil {
		return nil, err
	}
	defer alloc.Close()
	inside, err := filepath.Rel(task.AllocDir, filepath.Join(task.TaskDir().LocalDir, name))
	if err != nil {
		return nil, err
	}
	archive, err := alloc.Open(inside)
	if err != nil {
		return nil, err
	}
	return archive, nil
}
