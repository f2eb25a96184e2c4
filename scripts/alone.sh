#!/usr/bin/env bash
# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# Runs one command in its own network, mount and process namespaces. Used ports,
# bridges and the firewall of the host have no effect, and the kernel's network
# settings start as on a newly installed machine. When the command ends or is
# interrupted, all of its processes, mounts, interfaces, firewall rules and
# settings end too. The only network inside is loopback.
# Usage: alone.sh COMMAND...
#
# GPU_MEM_FORWARD=1 starts with IPv4 forwarding on, as after another engine.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# cover DIRECTORY...: later writes there stay inside. Network namespaces and
# locks are in /run, the addresses that CNI assigned in /var/lib.
cover() {
  local directory layers
  layers=$(mktemp -d)
  mount -t tmpfs gpu-mem-alone "$layers"
  for directory; do
    mkdir -p "$layers$directory"/{upper,work}
    mount -t overlay gpu-mem-alone "$directory" \
      -o "lowerdir=$directory,upperdir=$layers$directory/upper,workdir=$layers$directory/work"
  done
  umount --lazy "$layers" # the overlays keep it
  rmdir "$layers"
}

# The copied mounts of other network namespaces would keep those alive.
drop_networks() { awk '$3 == "nsfs" { print $2 }' /proc/self/mounts | xargs -r umount --lazy || true; }

# This is process 1 inside: all others end with it, and it reaps orphans. A
# signal to the group reaches the command directly.
inside() {
  trap : INT TERM
  drop_networks
  cover /run /var/lib
  rm -rf /run/gpu-mem-dev /run/netns /var/lib/cni # they describe another network
  ip link set lo up
  say "${GPU_MEM_FORWARD:-0}" >/proc/sys/net/ipv4/ip_forward
  "$@"
}

# With job control the command gets its own process group; signals are passed on
# to it.
outside() {
  local group status=0
  need_root
  need unshare ip
  set -m
  unshare --net --mount --pid --fork --kill-child --mount-proc -- "$0" --inside "$@" &
  group=$!
  trap 'kill -INT -- -$group 2>/dev/null || true' INT
  trap 'kill -TERM -- -$group 2>/dev/null || true' TERM HUP
  while wait "$group" && status=0 || status=$?; ((status > 128)) && kill -0 "$group" 2>/dev/null; do :; done
  return "$status"
}

(($# > 0)) || usage "COMMAND..."
if [[ $1 == --inside ]]; then
  inside "${@:2}"
else
  outside "$@"
fi
