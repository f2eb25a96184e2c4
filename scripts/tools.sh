#!/usr/bin/env bash
# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# Builds the tools of the development cluster into the cache, from their Go
# modules, which tools/*/go.mod pins. An existing binary of the pinned version is
# kept. The agents in NOMAD and CONSUL, or on PATH, are preferred. Usage: tools.sh nomad|consul|runtime|lint|release|vulncheck|docker28|docker29 ...
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

toolkit=github.com/NVIDIA/nvidia-container-toolkit

# pinned MODULE-FOLDER MODULE: the version in its go.mod.
pinned() { (cd "$GPU_MEM_ROOT/scripts/tools/$1" && go list -m -f '{{.Version}}' "$2"); }

# A Go binary contains the version of its module.
built() { go version -m "$1" 2>/dev/null | awk '$1 == "mod" { print $3 }'; }

# packages TOOL: the tool's packages, as lines "FOLDER MODULE PACKAGE INTO"; INTO is a folder in the cache.
# An engine has its own folder, since its programs have the names of Debian's.
packages() {
  local program
  case $1 in
    nomad | consul) say "$1 github.com/hashicorp/$1 github.com/hashicorp/$1 bin" ;;
    lint) say "lint github.com/golangci/golangci-lint/v2 github.com/golangci/golangci-lint/v2/cmd/golangci-lint bin" ;;
    runtime)
      for program in nvidia-container-runtime nvidia-cdi-hook nvidia-ctk; do
        say "toolkit $toolkit $toolkit/cmd/$program bin"
      done
      ;;
    release)
      say "dist github.com/goreleaser/nfpm/v2 github.com/goreleaser/nfpm/v2/cmd/nfpm bin"
      say "dist github.com/CycloneDX/cyclonedx-gomod github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod bin"
      ;;
    vulncheck) say "dist golang.org/x/vuln golang.org/x/vuln/cmd/govulncheck bin" ;;
    docker28) engine docker28 github.com/docker/docker ;;
    docker29)
      engine docker29 github.com/moby/moby/v2
      say "runc github.com/opencontainers/runc github.com/opencontainers/runc docker29" # Debian's knows no time namespaces
      ;;
    *) die "no tool '$1': nomad, consul, runtime, lint, release, vulncheck, docker28 or docker29" ;;
  esac
}

engine() {
  say "$1 $2 $2/cmd/docker-proxy $1"
  say "$1 $2 $2/cmd/dockerd $1"
}

# flags FOLDER MODULE: further arguments of go build, one in each line.
flags() {
  case $1 in
    docker28) printf '%s\n' -ldflags "-X $2/dockerversion.Version=$(pinned "$1" "$2" | sed 's/^v//; s/+.*//')" ;;
    docker29) printf '%s\n' -ldflags "-X $2/dockerversion.Version=$(moby_version "$1" "$2")" ;;
    runc)
      pkg-config --exists libseccomp || die "runc needs libseccomp: apt-get install libseccomp-dev pkg-config"
      printf '%s\n' -tags seccomp
      ;;
  esac
}

# The module of Engine 29 has its own version numbers, and a file with the engine's version.
moby_version() {
  (cd "$GPU_MEM_ROOT/scripts/tools/$1" && go mod download "$2" &&
    awk '$1 == "last:" { gsub("\"", "", $2); print $2 }' "$(go list -m -f '{{.Dir}}' "$2")/releases/versions.yaml")
}

name_of() { basename "${1%/v[0-9]}"; }

is_built() { [[ $(built "$GPU_MEM_CACHE/$4/$(name_of "$3")") == $(pinned "$1" "$2") ]]; }

# agent TOOL: the agent in use: the one in NOMAD or CONSUL, on PATH, or in the cache.
agent() {
  case $1 in
    nomad) say "$NOMAD" ;;
    consul) say "$CONSUL" ;;
    *) return 1 ;;
  esac
}

# An agent of the machine is used as it is.
is_given() {
  local path
  path=$(agent "$1") && [[ $path != "$GPU_MEM_CACHE/bin/$1" ]] || return 1
  [[ -x $path ]] || die "$1: $path is not a program: correct ${1^^}, or leave it out"
}

# say_agents TOOL...: prints the versions of the agents.
say_agents() {
  local tool path
  for tool; do
    ! path=$(agent "$tool") || say "$tool: $("$path" version | head -1), $path"
  done
}

# missing TOOL...: the packages to build, as lines of packages.
missing() {
  local tool package
  for tool; do
    is_given "$tool" || packages "$tool"
  done | while read -r -a package; do
    is_built "${package[@]}" || say "${package[*]}"
  done
}

# build FOLDER MODULE PACKAGE INTO: builds into a temporary folder first, so that the
# cache never holds an incomplete binary.
build() {
  local name temp flags
  name=$(name_of "$3")
  flags=$(flags "$1" "$2")
  mapfile -t flags < <([[ -z $flags ]] || say "$flags")
  temp=$(mktemp -d "$GPU_MEM_CACHE/build.XXXXXX")
  compile "$GPU_MEM_ROOT/scripts/tools/$1" "${flags[@]}" -o "$temp/$name" "$3" >"$temp/log" 2>&1 &
  if ! await $! "building $name $(pinned "$1" "$2"), once: up to 10 minutes on two cores"; then
    cat "$temp/log" >&2
    die "$name was not built"
  fi
  mkdir -p "$GPU_MEM_CACHE/$4"
  mv -f "$temp/$name" "$GPU_MEM_CACHE/$4/$name"
}

# compile FOLDER ARGUMENT...
compile() { cd "$1" && CGO_ENABLED=1 CGO_CFLAGS=-Wno-deprecated-declarations go build -trimpath "${@:2}"; }

(($# > 0)) || die "usage: tools.sh nomad|consul|runtime|lint|release|vulncheck|docker28|docker29 ..."
mkdir -p "$GPU_MEM_CACHE/bin"
# A run that needs no build does not wait for another run's build.
wanted=$(missing "$@")
if [[ -z $wanted ]]; then
  say_agents "$@"
  exit 0
fi
# Two runs at once would build the same tool twice, so the second one waits.
exec 9>"$GPU_MEM_CACHE/build.lock"
flock 9
trap 'rm -rf "$GPU_MEM_CACHE"/build.??????' EXIT
while read -r -a package; do
  is_built "${package[@]}" || build "${package[@]}"
done <<<"$wanted"
say_agents "$@"
