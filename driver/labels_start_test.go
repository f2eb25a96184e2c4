// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/driver/label"
)

// Where this driver takes the place of Nomad's own, log shippers find what they did.
func TestServesAsDockerWithItsLabels(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.name = BuiltinName
	_, _, err := w.boot().StartTask(w.task(``))
	must.NoError(t, err)
	found, err := w.engine.List(t.Context(), map[string]string{label.BuiltinAlloc: allocID})
	must.NoError(t, err)
	must.SliceLen(t, 1, found)
}
