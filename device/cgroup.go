// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import "regexp"

// containerID matches an engine's container ID in a cgroup's path:
//
//	/docker/<id>                          cgroupfs driver
//	/system.slice/docker-<id>.scope       systemd driver; also libpod, crio, cri-containerd
//
// Version 1 has one such path for each controller, version 2 a single one.
var containerID = regexp.MustCompile(`[/:-]([0-9a-f]{64})(?:\.scope)?(?:/|\s|$)`)

// containersOf returns the IDs of the containers that a process runs in, from
// the text of its /proc/<pid>/cgroup, the outermost first.
func containersOf(cgroup string) []string {
	var ids []string
	seen := map[string]bool{}
	for _, match := range containerID.FindAllStringSubmatch(cgroup, -1) {
		if !seen[match[1]] {
			seen[match[1]] = true
			ids = append(ids, match[1])
		}
	}
	return ids
}
