#!/usr/bin/env bash
# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# Checks that every source file has the lines of copyright and licence, or adds them where they are missing.
# Usage: spdx.sh check|write
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$GPU_MEM_ROOT"

copyright='Copyright the nomad-gpu-mem authors'
licence='SPDX-License-Identifier: MPL-2.0'

# sources: Go, C, shell and awk files, committed or about to be, with a NUL after each.
sources() {
  local file
  git ls-files -z --cached --others --exclude-standard -- '*.go' '*.c' '*.h' '*.sh' '*.awk' .ci/run |
    while IFS= read -r -d '' file; do
      [[ ! -f $file ]] || printf '%s\0' "$file"
    done
}

# unmarked: the sources that do not begin with the two lines, except for a line with an interpreter.
unmarked() {
  # shellcheck disable=SC2016 # the dollar signs are awk's
  sources | xargs -0 awk -v copyright="$copyright" -v licence="$licence" '
    function report() { if (file != "" && found < 2) print file }
    FNR == 1 { report(); file = FILENAME; found = 0; first = /^#!/ ? 2 : 1 }
    FNR == first { found += ($0 == "// " copyright || $0 == "# " copyright) }
    FNR == first + 1 { found += ($0 == "// " licence || $0 == "# " licence) }
    FNR > first + 1 { nextfile }
    END { report() }'
}

# mark FILE: adds the lines. A blank line follows, since Go reads a comment directly above a package as its documentation.
mark() {
  local sign=// text
  case $1 in *.sh | *.awk | .ci/run) sign='#' ;; esac
  text=$(mktemp)
  {
    sed -n '1{/^#!/p}' "$1"
    printf '%s %s\n%s %s\n\n' "$sign" "$copyright" "$sign" "$licence"
    sed '1{/^#!/d}' "$1"
  } >"$text"
  cat "$text" >"$1" # keeps the mode of the file
  rm "$text"
}

case ${1:-} in
  check)
    missing=$(unmarked)
    [[ -z $missing ]] || die "no copyright and licence in these files, run 'make fmt':"$'\n'"$missing"
    ;;
  write) unmarked | while read -r file; do mark "$file"; done ;;
  *) usage "check|write" ;;
esac
