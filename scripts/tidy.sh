#!/usr/bin/env bash
# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# Checks that go.mod and go.sum are tidy, those of the tools as well. For this Go reads modules that no build
# needs, and downloads each of them once. Usage: tidy.sh
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$GPU_MEM_ROOT"

failed=()
for folder in . scripts/tools/*/; do
  go -C "$folder" mod tidy -diff || failed+=("$folder")
done
((${#failed[@]} == 0)) || die "go.mod or go.sum is not tidy, run 'go mod tidy' in: ${failed[*]}"
