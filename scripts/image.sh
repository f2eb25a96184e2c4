#!/usr/bin/env bash
# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# Makes the images of the development cluster from the machine's own static
# busybox, so that nothing is pulled:
#
#   gpu-mem/busybox:1  a shell and its tools
#   gpu-mem/cuda:1     the same, and it requests all GPUs, as images of CUDA do
#   gpu-mem/pause:1    sleeps until it gets a signal; holds the network of a group
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

export DOCKER_HOST=unix://$GPU_MEM_RUN/docker.sock

# root_archive: a file system with nothing but busybox, as a tar stream.
root_archive() {
  local root applet
  root=$(mktemp -d)
  mkdir -p "$root"/{bin,dev,etc,proc,sys,root,tmp,var/run}
  chmod 1777 "$root/tmp"
  cp /bin/busybox "$root/bin/busybox"
  for applet in $(/bin/busybox --list); do
    [[ $applet == busybox ]] || ln -s busybox "$root/bin/$applet"
  done
  printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n' >"$root/etc/passwd"
  printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
  tar --numeric-owner --owner=0 --group=0 -C "$root" -c .
  rm -rf "$root"
}

# make_image NAME CHANGE: imports the archive unless the image is there.
make_image() {
  docker image inspect "$1" >/dev/null 2>&1 ||
    root_archive | docker import --change 'ENV PATH=/bin' --change "$2" - "$1" >/dev/null
}

need docker
make_image gpu-mem/busybox:1 'CMD ["/bin/sh"]'
make_image gpu-mem/cuda:1 'ENV NVIDIA_VISIBLE_DEVICES=all'
# A shell waits for its child before it handles a signal, but not in `wait`.
make_image gpu-mem/pause:1 \
  'ENTRYPOINT ["/bin/sh", "-c", "trap \"exit 0\" TERM INT; sleep 2147483647 & wait"]'
say "Images: gpu-mem/busybox:1 gpu-mem/cuda:1 gpu-mem/pause:1"
