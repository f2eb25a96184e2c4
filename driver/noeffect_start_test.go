// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"testing"

	"github.com/shoenig/test/must"
)

// A remark is an event of the task.
func TestNoEffectIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	_, _, err := d.StartTask(w.task(`auth { email = "e" }`))
	must.NoError(t, err)
	eventually(t, func() bool { return d.reported("config.auth.email has no effect") })
}
