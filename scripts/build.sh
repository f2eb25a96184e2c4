#!/usr/bin/env bash
# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# Builds into bin/, or into the folder in GPU_MEM_BIN. Usage: build.sh program|fakenvml ...
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$GPU_MEM_ROOT"

export CGO_ENABLED=1 CGO_CFLAGS=-Wno-deprecated-declarations

# go-nvml leaves NVML's symbols undefined until the library is loaded. A binary
# that binds all symbols at its start would fail before that.
check_lazy_binding() {
  ! readelf --dynamic --wide "$1" | grep -E 'BIND_NOW|FLAGS.*\bNOW\b' ||
    die "$1 binds its symbols at start and cannot load NVML: drop -z now from the linker's flags"
}

build_program() {
  local version
  version=$(scripts/version.sh)
  quietly "building nomad-gpu-mem, at first with its modules: up to 3 minutes" \
    go build -trimpath -ldflags "-X nomad-gpu-mem/internal/version.Version=$version" -o "$temp/nomad-gpu-mem" .
  check_lazy_binding "$temp/nomad-gpu-mem"
  publish nomad-gpu-mem
}

build_fakenvml() {
  quietly "building libnvidia-ml.so.1" go run ./scripts/fakenvml "$temp"
  publish libnvidia-ml.so.1
}

# Plugins may be running from bin/: a file is replaced, never written to.
publish() {
  mv -f "$temp/$1" "$bin/$1"
  say "built ${bin#"$GPU_MEM_ROOT"/}/$1"
}

(($# > 0)) || usage "program|fakenvml ..."
bin=${GPU_MEM_BIN:-$GPU_MEM_ROOT/bin}
temp=$bin/.build.$$
mkdir -p "$temp"
trap 'rm -rf "$temp"' EXIT
for target; do
  case $target in
    program) build_program ;;
    fakenvml) build_fakenvml ;;
    *) usage "program|fakenvml ..." ;;
  esac
done
