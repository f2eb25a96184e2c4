// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"testing"

	"github.com/shoenig/test/must"
)

func TestParseMiB(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{
		"1500": 1500, "-2.5": -2.5, "1GiB": 1024, "1.5 GiB": 1536, "-512MiB": -512, "1gib": 1024, "1Gi": 1024,
		"1048576B": 1, "1.048576GB": 1000, "1.048576G": 1000, "1TiB": 1 << 20,
	} {
		got, err := parseMiB(text)
		must.NoError(t, err)
		must.Eq(t, want, got, must.Sprint(text))
	}
	for _, text := range []string{"", "much", "1,5GiB", "1.5XB", "--1GiB", "99999999999999EiB"} {
		_, err := parseMiB(text)
		must.ErrorContains(t, err, "invalid size", must.Sprint(text))
	}
}

func TestParseBound(t *testing.T) {
	t.Parallel()
	mib, err := parseBound("24GiB")
	must.NoError(t, err)
	must.Eq(t, 24576, mib)
	for _, text := range []string{"-1", "1.5", "NaN", "Inf", "17TiB"} {
		_, err := parseBound(text)
		must.ErrorContains(t, err, "want whole MiB", must.Sprint(text))
	}
}
