// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

func TestReport(t *testing.T) {
	t.Parallel()
	var starts Tally
	starts.Add(2*time.Second, false)
	starts.Add(4*time.Second, false)
	starts.Add(0, true)
	r := Report{
		Seed: 42, Nodes: 3, GPUs: 6, Churned: 90 * time.Second, Looks: 80, Blind: 5, Containers: 31,
		Operations: map[string]Tally{"start": starts},
		Faults:     map[string]Tally{"agent killed": {Count: 1, Total: time.Second, Longest: time.Second}},
		Processes:  []Trends{{Process: "driver", PID: 7, Over: time.Minute, FDs: Trend{First: 20, Last: 22, PerHour: 120}}},
	}
	must.NoError(t, r.Err())

	r.Violations = []Violation{{Kind: Double, At: noon, Text: "two of them"}}
	r.Leaks = []Leak{{"mount", "/run/x"}}
	for _, part := range []string{"SEED=42", "two of them", "leaked: mount: /run/x"} {
		must.ErrorContains(t, r.Err(), part)
	}

	var text strings.Builder
	r.Write(&text)
	for _, line := range []string{
		"seed 42, 3 nodes, 6 GPUs, churned for 1m30s",
		"start                                 2         1",
		"agent killed                          1         0",
		"driver (pid 7)",
		"20 to 22",
		"two running containers on one unit    1",
		"leaks                                 1",
		"violated at 12:00:00.000: two running containers on one unit: two of them",
		"leaked: mount: /run/x",
	} {
		must.StrContains(t, words(text.String()), words(line))
	}

	encoded, err := r.JSON()
	must.NoError(t, err)
	var back Report
	must.NoError(t, json.Unmarshal(encoded, &back))
	must.Eq(t, r, back)
}

// words are the text's, without the widths of its columns.
func words(text string) string { return strings.Join(strings.Fields(text), " ") }
