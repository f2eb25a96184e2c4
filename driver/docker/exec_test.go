// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"testing"

	"github.com/shoenig/test/must"
)

func TestTail(t *testing.T) {
	t.Parallel()
	kept := tail{limit: 4}
	for _, step := range []struct{ write, want string }{
		{"ab", "ab"}, {"", "ab"}, {"cd", "abcd"}, {"e", "bcde"}, {"123456789", "6789"},
	} {
		n, err := kept.Write([]byte(step.write))
		must.NoError(t, err)
		must.Eq(t, len(step.write), n)
		must.Eq(t, step.want, string(kept.kept))
	}
	var nothing tail
	n, err := nothing.Write([]byte("abc"))
	must.NoError(t, err)
	must.Eq(t, 3, n)
	must.SliceEmpty(t, nothing.kept)
}
