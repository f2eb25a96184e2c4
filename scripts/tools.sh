#!/usr/bin/env bash
# Builds the tools of the development cluster from their Go modules, which are
# pinned in tools/*/go.mod, into the cache. A binary that is there and has the
# pinned version is kept. Usage: tools.sh nomad|consul|runtime|lint ...
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

toolkit=github.com/NVIDIA/nvidia-container-toolkit

# pinned MODULE-FOLDER MODULE: the version that its go.mod asks for.
pinned() { (cd "$GPU_MEM_ROOT/scripts/tools/$1" && go list -m -f '{{.Version}}' "$2"); }

# A Go binary knows the version of the module that it was built from.
built() { go version -m "$1" 2>/dev/null | awk '$1 == "mod" { print $3 }'; }

# build FOLDER MODULE PACKAGE MINUTES: builds into a folder of its own first,
# so that the cache never holds half a binary.
build() {
  local folder=$1 module=$2 package=$3 minutes=$4 name version temp
  name=$(basename "${package%/v[0-9]}")
  version=$(pinned "$folder" "$module")
  [[ $(built "$GPU_MEM_CACHE/bin/$name") != "$version" ]] || return 0
  say "building $name $version, once: $minutes on two cores"
  temp=$(mktemp -d "$GPU_MEM_CACHE/build.XXXXXX")
  (cd "$GPU_MEM_ROOT/scripts/tools/$folder" &&
    CGO_ENABLED=1 CGO_CFLAGS=-Wno-deprecated-declarations go build -trimpath -o "$temp/$name" "$package")
  mv -f "$temp/$name" "$GPU_MEM_CACHE/bin/$name"
}

# An agent on PATH is used as it is.
build_agent() {
  local name=$1 minutes=$2 path
  path=$(command -v "$name" || true)
  if [[ -n $path && $path != "$GPU_MEM_CACHE/bin/$name" ]]; then
    say "$name: using $path"
    return
  fi
  build "$name" "github.com/hashicorp/$name" "github.com/hashicorp/$name" "$minutes"
}

build_tool() {
  case $1 in
    nomad) build_agent nomad "3 to 8 minutes" ;;
    consul) build_agent consul "3 to 8 minutes" ;;
    lint) build lint github.com/golangci/golangci-lint/v2 \
      github.com/golangci/golangci-lint/v2/cmd/golangci-lint "2 to 5 minutes" ;;
    runtime)
      local program
      for program in nvidia-container-runtime nvidia-cdi-hook nvidia-ctk; do
        build toolkit "$toolkit" "$toolkit/cmd/$program" "up to a minute"
      done
      ;;
    *) die "no tool '$1': nomad, consul, runtime or lint" ;;
  esac
}

(($# > 0)) || die "usage: tools.sh nomad|consul|runtime|lint ..."
mkdir -p "$GPU_MEM_CACHE/bin"
# Two runs at once would build the same thing twice; the second one waits.
exec 9>"$GPU_MEM_CACHE/build.lock"
flock 9
trap 'rm -rf "$GPU_MEM_CACHE"/build.??????' EXIT
for tool; do build_tool "$tool"; done
