// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"

	"github.com/hashicorp/nomad/plugins/base"

	"nomad-gpu-mem/driver/logpipe"
)

// role is the role of a process of this program.
type role int

const (
	commandRole role = iota
	deviceRole
	driverRole
	holderRole
)

// The names of the program in Nomad's plugin_dir. The agent's plugin blocks are
// labelled with them.
const (
	deviceName = "nomad-device-gpu-mem"
	driverName = "nomad-driver-gpu-docker"
)

// roleOf selects the role by the program's name. It returns an error with advice if a plugin
// was not started by Nomad, or if Nomad started the command line.
func roleOf(name string, byNomad bool) (role, error) {
	if name == logpipe.ProcessName {
		return holderRole, nil
	}
	plugin, isPlugin := map[string]role{deviceName: deviceRole, driverName: driverRole}[name]
	switch {
	case isPlugin && byNomad:
		return plugin, nil
	case isPlugin:
		return 0, fmt.Errorf("%s is a Nomad plugin: install it in the agent's plugin_dir, where Nomad starts it.\n"+
			"For the commands run the program as nomad-gpu-mem: see 'nomad-gpu-mem --help'", name)
	case byNomad:
		return 0, fmt.Errorf("Nomad started %s as a plugin, but its name does not select one: install it in plugin_dir,\n"+
			"as files or symbolic links, under the names %s and %s", name, deviceName, driverName)
	default:
		return commandRole, nil
	}
}

// startedByNomad checks for the variable that Nomad sets for its plugins.
func startedByNomad(getenv func(string) string) bool {
	return getenv(base.Handshake.MagicCookieKey) == base.Handshake.MagicCookieValue
}
