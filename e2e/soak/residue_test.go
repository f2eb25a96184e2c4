// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package soak

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/e2e/soak/model"
)

// residueTime bounds how long the driver may take to remove pause containers on Nomad's
// request, and Nomad to remove the directories of allocations. A plugin that is killed while it makes or removes one leaves it for an hour,
// which is longer than a soak waits.
const residueTime = 90 * time.Second

// removeSandboxes removes and counts the remaining pause containers, all of ended jobs, so
// that other leaks are visible.
func (s *soak) removeSandboxes(t *testing.T) {
	t.Helper()
	for _, m := range s.machines {
		left, err := m.docker.ContainerList(t.Context(), container.ListOptions{Filters: filters.NewArgs(filters.Arg("label", labelSandbox))})
		must.NoError(t, err)
		for _, one := range left {
			must.NoError(t, m.docker.ContainerRemove(t.Context(), one.ID, container.RemoveOptions{Force: true}))
			s.report.Sandboxes++
		}
	}
}

// awaitUnstaged waits until no mounts are left of starts that ended with their plugin. The next plugin removes them. Until
// then Nomad cannot remove the allocation's directory, and it tries only once: an operator does not collect garbage in these
// seconds.
func (s *soak) awaitUnstaged(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		for _, dir := range s.stateDirs() {
			staged, _ := filepath.Glob(filepath.Join(dir, "staging", "attempts", "*")) // the pattern is valid
			if len(staged) > 0 {
				return fmt.Errorf("%s is still mounted", staged[0])
			}
		}
		return nil
	})
}

// allocDirectory is the kind of leak of an allocation's directory.
const allocDirectory = "allocation's directory"

// removeDirectories removes and counts the directories of allocations that Nomad no longer knows: it tried to remove them
// while their plugin was dead, and does not try again. One that something of ours keeps busy stays, and is a leak. So does
// each beside a leak of another kind.
func (s *soak) removeDirectories(t *testing.T, leaks []model.Leak) {
	t.Helper()
	if slices.ContainsFunc(leaks, func(leak model.Leak) bool { return leak.Kind != allocDirectory }) {
		return
	}
	for _, leak := range leaks {
		_, _, err := s.nomad.Allocations().Info(filepath.Base(leak.Item), nil)
		if answer, ok := errors.AsType[api.UnexpectedResponseError](err); !ok || answer.StatusCode() != http.StatusNotFound {
			continue
		}
		if err := os.RemoveAll(leak.Item); err != nil {
			t.Logf("%s cannot be removed: %v", leak.Item, err)
			continue
		}
		s.report.Directories++
	}
}
