#!/usr/bin/env bash
# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# Prints the version of a build: the tag if there is one, otherwise the version in internal/version with the
# commit. A tree that differs from its commit gets a mark. Nomad refuses a plugin whose version is not semantic,
# so commit and mark are build metadata.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
dirty=
# A file that is not committed yet is also compiled.
[[ -z $(git --no-optional-locks status --porcelain 2>/dev/null) ]] || dirty=-dirty

if tag=$(git describe --exact-match --tags --match 'v[0-9]*' 2>/dev/null); then
  base=${tag#v}
else
  base=$(sed -n 's/^var Version = "\(.*\)"$/\1/p' internal/version/version.go)
fi
if [[ -n $tag && -z $dirty ]]; then
  echo "$base"
else
  echo "$base+$commit$dirty"
fi
