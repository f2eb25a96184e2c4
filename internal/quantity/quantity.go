// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package quantity reads sizes and durations in configurations and jobs. Its errors give the
// invalid value and an example; the caller adds the key.
package quantity

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// Bytes reads a size in bytes: GiB is a power of 2, GB a power of 10, and a bare number is
// bytes.
func Bytes(text string) (uint64, error) {
	bytes, err := humanize.ParseBytes(text)
	if err != nil || strings.ContainsAny(text, ",-") { // ParseBytes drops commas: 1,5GiB would be 15GiB
		return 0, invalidSize(text, "")
	}
	return bytes, nil
}

// MiB reads a size that must be whole MiB.
func MiB(text string) (uint64, error) {
	bytes, err := Bytes(text)
	if err != nil {
		return 0, err
	}
	if bytes%humanize.MiByte != 0 {
		return 0, invalidSize(text, fmt.Sprintf(": %d bytes are not whole MiB", bytes))
	}
	return bytes / humanize.MiByte, nil
}

func invalidSize(text, why string) error {
	return fmt.Errorf("invalid size %q%s, want for example 1500MiB or 2GiB", text, why)
}

// Duration reads a duration.
func Duration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("invalid duration %q, want for example 90s or 5m", text)
	}
	return d, nil
}

// DurationFrom reads a duration that must not be shorter than least.
func DurationFrom(text string, least time.Duration) (time.Duration, error) {
	d, err := Duration(text)
	if err == nil && d < least {
		return 0, fmt.Errorf("invalid duration %q, want at least %s", text, least)
	}
	return d, err
}
