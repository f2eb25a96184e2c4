// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"cmp"
	"fmt"
	"os"
	"os/user"
	"strconv"
)

// longestName is the limit, in characters, of a user's or host's name in a claim.
const longestName = 64

// holder names the holder of units outside Nomad, so that an operator finds the process
// that uses them: "ada@desk-7 pid 4711". The name has no pid if the units stay held after
// this process has ended.
func (a App) holder(runsCommand bool) string {
	name := a.user() + "@" + hostname()
	if runsCommand {
		name += " pid " + strconv.Itoa(os.Getpid())
	}
	return name
}

// user returns the user's name, under sudo that of the calling user. A user without a
// name, as in a container, is named by its uid.
func (a App) user() string {
	name := cmp.Or(a.Getenv("SUDO_USER"), a.Getenv("USER"), a.Getenv("LOGNAME"))
	if name == "" {
		if known, err := user.Current(); err == nil {
			name = known.Username
		}
	}
	return cut(cmp.Or(name, fmt.Sprintf("uid %d", os.Getuid())))
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "unknown host"
	}
	return cut(name)
}

func cut(name string) string {
	if all := []rune(name); len(all) > longestName {
		return string(all[:longestName])
	}
	return name
}
