#!/usr/bin/env bash
# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# Installs the Debian packages that the project needs and this machine lacks.
# Only what is missing is installed, and no service is started.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Commands or files, and the packages that contain them.
needed=(
  "dockerd docker.io" "containerd containerd" "runc runc" "docker docker-cli"
  "iptables iptables" "ip iproute2" "pgrep procps" "gcc gcc" "readelf binutils"
  "curl curl" "jq jq" "git git" "shellcheck shellcheck"
  "/bin/busybox busybox-static" "/usr/lib/cni/bridge containernetworking-plugins"
  "/usr/include/stdlib.h libc6-dev"
)

missing() {
  local entry
  for entry in "${needed[@]}"; do
    command -v "${entry% *}" >/dev/null || [[ -e ${entry% *} ]] || say "${entry#* }"
  done
}

# The images are made from busybox, so it must run without libraries.
static_busybox() { ! ldd /bin/busybox >/dev/null 2>&1; }

# Debian starts a service as soon as it is installed, unless this file forbids it.
forbid_services() {
  local policy=/usr/sbin/policy-rc.d
  [[ ! -e $policy ]] || return 0
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
  trap 'rm -f /usr/sbin/policy-rc.d' EXIT
}

# Before Debian 13 the command line client is part of docker.io.
available() {
  local package
  for package; do
    if [[ $package == docker-cli ]] && ! apt-cache show docker-cli >/dev/null 2>&1; then
      package=docker.io
    fi
    say "$package"
  done
}

mapfile -t packages < <(missing)
static_busybox || packages+=(busybox-static)
if ((${#packages[@]} == 0)); then
  say "Debian packages: all there"
  exit
fi
need_root
say "Debian packages: installing ${packages[*]}"
forbid_services
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
mapfile -t packages < <(available "${packages[@]}" | sort -u)
apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
