// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"

	"github.com/hashicorp/nomad/plugins/base"

	"nomad-gpu-mem/driver/logpipe"
)

// role is what a process of this program is for.
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

// roleOf chooses by the name the program was started under. A plugin that no
// Nomad started, and the command line started by Nomad, are mistakes: the error
// says what to do.
func roleOf(name string, byNomad bool) (role, error) {
	if name == logpipe.ProcessName {
		return holderRole, nil
	}
	plugin, isPlugin := map[string]role{deviceName: deviceRole, driverName: driverRole}[name]
	switch {
	case isPlugin && byNomad:
		return plugin, nil
	case isPlugin:
		return 0, fmt.Errorf("%s is a Nomad plugin: it stands in the agent's plugin_dir, and Nomad starts it.\n"+
			"The commands are under the name nomad-gpu-mem: try 'nomad-gpu-mem --help'", name)
	case byNomad:
		return 0, fmt.Errorf("Nomad started %s as a plugin, but its name does not say which: in plugin_dir it must stand,\n"+
			"as files or symbolic links, under the names %s and %s", name, deviceName, driverName)
	default:
		return commandRole, nil
	}
}

// startedByNomad looks for what Nomad gives to the plugins that it starts.
func startedByNomad(getenv func(string) string) bool {
	return getenv(base.Handshake.MagicCookieKey) == base.Handshake.MagicCookieValue
}
