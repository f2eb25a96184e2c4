// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

// The hosted workflow runs only make targets, so a developer can reproduce its results.
func TestWorkflowRunsMakeTargets(t *testing.T) {
	t.Parallel()
	workflow, err := os.ReadFile(".github/workflows/check.yml")
	must.NoError(t, err)
	makefile, err := os.ReadFile("GNUmakefile")
	must.NoError(t, err)
	var run []string
	for _, step := range regexp.MustCompile(`(?m)^ *- run: (.*)$`).FindAllStringSubmatch(string(workflow), -1) {
		words := strings.Fields(step[1])
		must.Eq(t, "make", words[0])
		run = append(run, words[1:]...)
	}
	for _, target := range run {
		must.RegexMatch(t, regexp.MustCompile(`(?m)^`+target+`:.* ## `), string(makefile))
	}
	for _, needed := range []string{"lint", "tidy-check", "test-unit", "vulncheck"} {
		must.SliceContains(t, run, needed)
	}
}
