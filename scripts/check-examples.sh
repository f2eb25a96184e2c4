#!/usr/bin/env bash
# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# Checks that the files of example/ are formatted and that Nomad accepts them.
# No agent is needed.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$GPU_MEM_ROOT"

need "$NOMAD"
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
printf 'data_dir = "%s"\nclient {\n  enabled = true\n}\n' "$temp" >"$temp/client.hcl"

"$NOMAD" fmt -check -recursive example >/dev/null || die "example/ is not formatted: run nomad fmt -recursive example"
for file in example/*/agent*.hcl; do
  "$NOMAD" config validate "$temp/client.hcl" "$file" >/dev/null || die "$file: Nomad refuses it"
done
for file in example/*/*.nomad.hcl; do
  "$NOMAD" job validate "$file" >"$temp/out" || { cat "$temp/out" >&2 && die "$file: Nomad refuses it"; }
done
say "examples: accepted by $("$NOMAD" version | head -1)"
