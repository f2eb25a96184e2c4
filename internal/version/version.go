// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package version is the one source of the program's version.
package version

// Version is the semantic version of this build, without a leading "v". Nomad
// refuses a plugin whose version it cannot parse, and prefers its own Docker
// driver, which says 0.1.0, to one of that name with a lower version. The linker
// sets it for releases.
var Version = "0.2.0-dev"
