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

// longestName is how many characters a user's or a host's name has in a claim.
const longestName = 64

// holder names who holds units outside Nomad, so that an operator finds the process that
// uses them: "ada@desk-7 pid 4711". There is no process to find if the units are held
// beyond the end of this one.
func (a App) holder(runsCommand bool) string {
	name := a.user() + "@" + hostname()
	if runsCommand {
		name += " pid " + strconv.Itoa(os.Getpid())
	}
	return name
}

// user is the user's name, also of one who became root by sudo. A user without a name, as
// in a container, has a number.
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
