// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"fmt"
	"path/filepath"

	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/driver/netfile"
)

// planNetworkFiles checks what the hosts and resolv.conf files of a task will say, and
// adds their mounts to the order. It writes nothing: the files are written once the whole
// job has passed its checks. A group's network has them since Docker writes none there; a
// task that chose another network gets Docker's.
func (s *start) planNetworkFiles() error {
	if s.task.DNS != nil {
		text, err := netfile.ResolvConf(s.task.DNS)
		if err != nil {
			return err
		}
		path := filepath.Join(s.task.Name, "resolv.conf")
		s.input.Files = append(s.input.Files, &drivers.MountConfig{
			TaskPath: "/etc/resolv.conf", HostPath: filepath.Join(s.task.AllocDir, path), Readonly: true, PropagationMode: "private",
		})
		s.netFiles = append(s.netFiles, func() error { return netfile.Replace(s.task.AllocDir, path, text) })
	}
	if s.task.NetworkIsolation == nil || s.input.Job.NetworkMode != "" {
		return nil
	}
	hosts := netfile.HostsOf(s.task.NetworkIsolation, s.input.Job.ExtraHosts)
	mount, err := s.services.hosts.Plan(s.task.AllocDir, hosts)
	if err != nil {
		return fmt.Errorf("the group's hosts file: %w", err)
	}
	if mount != nil {
		s.input.Files = append(s.input.Files, mount)
		s.netFiles = append(s.netFiles, func() error { return s.services.hosts.Write(s.task.AllocDir, hosts) })
	}
	return nil
}

// writeNetworkFiles writes what planNetworkFiles has planned.
func (s *start) writeNetworkFiles() error {
	for _, write := range s.netFiles {
		if err := write(); err != nil {
			return fmt.Errorf("cannot write a file of the group's network: %w", err)
		}
	}
	return nil
}
