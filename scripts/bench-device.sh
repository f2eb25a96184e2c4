#!/bin/bash
# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# Measures the cost of the device plugin and prints a table: each figure and its
# maximum on an idle machine, which is not checked. The plugin rests for
# GPU_MEM_IDLE (60s by default; 10m shows slow growth too).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

idle=${GPU_MEM_IDLE:-60s}
figures=$(mktemp)
trap 'rm -f "$figures"' EXIT

row() { printf '%-58s %14s %14s\n' "$1" "$2" "$3"; }

row figure measured 'idle machine'
go test -run '^$' -bench . ./device | awk -F '\t' '
  function name(text) { sub(/-[0-9]+ *$/, "", text); return text }
  function value(text) { sub(/^ +/, "", text); split(text, part, " "); return part[1] }
  name($1) == "BenchmarkGroups" {
    printf "groups of 16 GPUs x 564 units: time|%.2f ms|5 ms\n", value($3) / 1e6
    printf "groups of 16 GPUs x 564 units: memory|%.2f MiB|2 MiB\n", value($4) / 1048576
  }
  name($1) == "BenchmarkUnchangedPoll" {
    printf "unchanged poll of them: time|%.3f ms|\n", value($3) / 1e6
    printf "unchanged poll of them: memory|%.1f KiB|\n", value($4) / 1024
  }
  name($1) == "BenchmarkStats" {
    printf "statistics of them: time|%.2f ms|\n", value($3) / 1e6
  }' |
  while IFS='|' read -r what is limit; do row "$what" "$is" "$limit"; done

GPU_MEM_IDLE=$idle GPU_MEM_FIGURES=$figures go test -count=1 -timeout=1h -run '^TestIdle$' ./device >/dev/null
while IFS='|' read -r what is limit; do row "$what" "$is" "$limit"; done <"$figures"
