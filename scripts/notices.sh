#!/usr/bin/env bash
# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# Prints the licence texts of all modules that are linked into the program. Fails on a module without a
# licence or with one that is not accepted: do not use such a module. GOARCH chooses the architecture.
# Usage: notices.sh; notices.sh licence FILE, which prints the name of the licence in the file
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$GPU_MEM_ROOT"

# exceptions: files with other terms that are accepted. The first three belong to the library that draws plots;
# freetype offers FTL, a licence like BSD, or GPL, and FTL is chosen. The last one covers documentation.
exceptions() {
  printf 'exception\t%s\t%s\t%s\n' \
    codeberg.org/go-fonts/liberation LICENSE-SIL OFL-1.1 \
    github.com/ajstarks/svgo LICENSE CC-BY-4.0 \
    github.com/ajstarks/svgo LICENSE-link.txt CC-BY-4.0 \
    github.com/golang/freetype LICENSE FTL \
    github.com/golang/freetype licenses/ftl.txt FTL \
    github.com/opencontainers/go-digest LICENSE.docs CC-BY-SA-4.0
}

# linked: each module in the program, by path; for a replaced one its replacement.
linked() {
  local format name='{{with or .Replace .}}{{.Path}}\t{{.Version}}{{end}}'
  format='{{with .Module}}{{if not .Main}}module\t'$name'\t{{.Dir}}{{end}}{{end}}'
  go list -deps -f "$(printf '%b' "$format")" . | sort -u
}

# statements FOLDER...: the files that state a module's terms.
statements() {
  find "$@" -maxdepth 1 -type f -regextype posix-extended \
    -iregex '.*/(licen[sc]e|unlicense|copying|notice|copyright|patents)[^/]*' ! -name '*.go' -printf 'file\t%h\t%f\n'
  # A text to which the file LICENSE beside it only refers.
  find "$@" -path '*/licenses/ftl.txt' -printf 'file\t%H\t%P\n'
}

case ${1:-} in
  licence)
    kind=$(printf 'text\t%s\n' "$2" | awk -f scripts/notices.awk)
    [[ -n $kind ]] || die "$2 is not the text of a licence that is accepted"
    say "$kind"
    ;;
  "")
    modules=$(linked)
    goroot=$(go env GOROOT)
    say "nomad-gpu-mem is licensed under the MPL-2.0. It contains Go's standard library and the following modules."
    say "Portions of this software are copyright The FreeType Project (www.freetype.org). All rights reserved."
    mapfile -t folders < <(cut -f 4 <<<"$modules")
    {
      exceptions
      printf 'module\tGo\t%s\t%s\n' "$(go env GOVERSION)" "$goroot"
      say "$modules"
      statements "$goroot" "${folders[@]}" | sort
    } | awk -f scripts/notices.awk
    ;;
  *) usage "[licence FILE]" ;;
esac
