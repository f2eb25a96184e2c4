// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package soak

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"nomad-gpu-mem/e2e/soak/model"
)

var (
	allocID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	// cleaning matches lines about items without a task.
	cleaning = regexp.MustCompile(`(?i)dangling|no task owns|of another node|has forgotten|another process`)
)

const trailLines = 200 // printed of each log

// printTrail prints the log lines of agents and plugins about leaked allocations and about
// clean-up, since the logs are removed with the cluster.
func (s *soak) printTrail(leaks []model.Leak) {
	var ids []string
	for _, leak := range leaks {
		ids = append(ids, allocID.FindAllString(leak.Item, -1)...)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) == 0 {
		return
	}
	logs, _ := filepath.Glob(filepath.Join(s.cluster.run(), "nomad*.log")) // the pattern is valid
	for _, log := range logs {
		fmt.Printf("--- %s\n", filepath.Base(log))
		for _, line := range linesAbout(log, ids) {
			fmt.Println(line)
		}
	}
}

// linesAbout are the last lines of a log that name one of the IDs or are about cleaning.
func linesAbout(path string, ids []string) (lines []string) {
	file, err := os.Open(path)
	if err != nil {
		return []string{err.Error()}
	}
	defer file.Close()
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		line := scanner.Text()
		if cleaning.MatchString(line) || slices.ContainsFunc(ids, func(id string) bool { return strings.Contains(line, id) }) {
			lines = append(lines, line)
		}
	}
	return lines[max(0, len(lines)-trailLines):]
}
