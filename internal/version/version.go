// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package version has the program's version.
package version

// Version is the semantic version of this build, without a leading "v". Nomad rejects a plugin
// with a version that it cannot parse, and prefers its own Docker driver, version 0.1.0, to one
// of that name with a lower version. The linker sets it for releases.
var Version = "0.2.0-dev"
