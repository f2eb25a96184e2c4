// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package quantity_test

import (
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/quantity"
)

func TestMiB(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]uint64{
		"1500MiB": 1500, "1.5GiB": 1536, "1.5 GiB": 1536, "1gib": 1024, "1Gi": 1024, "1.048576GB": 1000, "1048576": 1, "0": 0,
	} {
		mib, err := quantity.MiB(text)
		must.NoError(t, err)
		must.Eq(t, want, mib, must.Sprint(text))
	}
	for text, want := range map[string]string{
		"lots":   `invalid size "lots", want for example 1500MiB`,
		"":       `invalid size ""`,
		"-1GiB":  `invalid size "-1GiB"`,
		"1,5GiB": `invalid size "1,5GiB"`,
		"1GB":    `invalid size "1GB": 1000000000 bytes are not whole MiB`,
		"1024":   `invalid size "1024": 1024 bytes are not whole MiB`,
	} {
		_, err := quantity.MiB(text)
		must.ErrorContains(t, err, want)
	}
}

func TestDuration(t *testing.T) {
	t.Parallel()
	d, err := quantity.DurationFrom("90s", time.Second)
	must.NoError(t, err)
	must.Eq(t, 90*time.Second, d)
	_, err = quantity.DurationFrom("5", time.Second)
	must.ErrorContains(t, err, `invalid duration "5", want for example 90s`)
	_, err = quantity.DurationFrom("-1s", 0)
	must.ErrorContains(t, err, `invalid duration "-1s", want at least 0s`)
}
