// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package config

import (
	"testing"

	"github.com/shoenig/test/must"
)

// A limit that is accepted is one that the kernel can hold.
func FuzzUlimit(f *testing.F) {
	f.Add("nofile", "1024:2048")
	f.Add("core", "-1")
	f.Add("nproc", "1:")
	f.Fuzz(func(t *testing.T, name, text string) {
		limit, err := ParseUlimit(name, text)
		if err != nil {
			must.ErrorContains(t, err, "config.ulimit")
			return
		}
		must.True(t, limit.Hard == -1 || limit.Soft != -1 && limit.Soft <= limit.Hard, must.Sprint(limit))
	})
}
