// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

// The complete name of an image stands for the same image.
func FuzzParseRef(f *testing.F) {
	for _, seed := range []string{
		"redis", "redis:7", "https://redis", "host:5000/team/app", "host:5000/app:1@sha256:" + strings.Repeat("a", 64),
		strings.Repeat("0f", 32), "", "A", "a:b:c",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		ref, err := parseRef(name)
		if err != nil {
			must.ErrorIs(t, err, ErrImageName)
			return
		}
		again, err := parseRef(ref.name)
		must.NoError(t, err)
		must.Eq(t, ref, again)
	})
}
