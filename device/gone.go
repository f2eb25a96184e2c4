// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// hostNamespace is the kernel's name of the initial PID namespace.
const hostNamespace = "pid:[4026531836]"

// seesAll reports whether proc shows all processes of the host: it is of the host's PID
// namespace and hides none. Only then does a missing process not exist.
func seesAll(proc string) bool {
	namespace, err := os.Readlink(filepath.Join(proc, "self/ns/pid"))
	if err != nil || namespace != hostNamespace {
		return false
	}
	_, err = os.Stat(filepath.Join(proc, "1"))
	return err == nil
}

// isGone reports whether no process has this folder of proc, or only a zombie.
func isGone(dir string) bool {
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	// After the name, which is in brackets and may hold any character: the state, and
	// 17 fields later the number of threads. The first thread of a process can end
	// before the others.
	after := strings.LastIndexByte(string(stat), ')')
	if err != nil || after < 0 {
		return false
	}
	fields := strings.Fields(string(stat[after+1:]))
	return len(fields) > 17 && (fields[0] == "Z" || fields[0] == "X") && (fields[17] == "0" || fields[17] == "1")
}
