// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"

	"github.com/hashicorp/nomad/plugins/base"

	"nomad-gpu-mem/driver/logpipe"
)

// role is the purpose of a process of this program.
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

// roleOf chooses by the name of the program. A plugin that was not started by Nomad,
// and a command line that was, are mistakes: the error says what to do.
func roleOf(name string, byNomad bool) (role, error) {
	if name == logpipe.ProcessName {
		return holderRole, nil
	}
	plugin, isPlugin := map[string]role{deviceName: deviceRole, driverName: driverRole}[name]
	switch {
	case isPlugin && byNomad:
		return plugin, nil
	case isPlugin:
		return 0, fmt.Errorf("%s is a Nomad plugin: it belongs in the agent's plugin_dir, and Nomad starts it.\n"+
			"The commands have the name nomad-gpu-mem: try 'nomad-gpu-mem --help'", name)
	case byNomad:
		return 0, fmt.Errorf("Nomad started %s as a plugin, but the name is not that of a plugin: in plugin_dir the program\n"+
			"needs the names %s and %s, as files or symbolic links", name, deviceName, driverName)
	default:
		return commandRole, nil
	}
}

// startedByNomad reports whether Nomad's variable for plugins is in the environment.
func startedByNomad(getenv func(string) string) bool {
	return getenv(base.Handshake.MagicCookieKey) == base.Handshake.MagicCookieValue
}
