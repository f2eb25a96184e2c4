// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package words_test

import (
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/words"
)

func TestCount(t *testing.T) {
	t.Parallel()
	must.Eq(t, "0 nodes", words.Count(0, "node"))
	must.Eq(t, "1 node", words.Count(1, "node"))
	must.Eq(t, "2 nodes", words.Count(2, "node"))
}

func TestPrintable(t *testing.T) {
	t.Parallel()
	must.Eq(t, "a\uFFFD[31mb\uFFFD", words.Printable("a\x1b[31mb\n"))
	must.Eq(t, "GPU für alle 一", words.Printable("GPU für alle 一"))
}
