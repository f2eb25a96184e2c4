#!/usr/bin/env bash
# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# Prints the version of a build: the tag where there is one, else the version
# in internal/version with the commit. Nomad refuses a plugin whose version is
# not semantic, so nothing else will do.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if tag=$(git describe --exact-match --tags --match 'v[0-9]*' 2>/dev/null); then
  echo "${tag#v}"
  exit
fi
base=$(sed -n 's/^var Version = "\(.*\)"$/\1/p' internal/version/version.go)
commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
echo "$base+$commit"
