#!/usr/bin/env bash
# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# Runs one command with a private Docker engine and two simulated GPUs, and stops
# the engine afterwards. README.md lists the variables in the command's
# environment. Usage: with-dockerd.sh COMMAND...
set -euo pipefail
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# Creating the bridge claims the slot, so two runs at once get two engines.
free_slot() {
  local slot
  for slot in {60..99}; do
    ip link add "gpumem$slot" type bridge 2>/dev/null || continue
    ip link set "gpumem$slot" alias "$GPU_MEM_RUN" && echo "$slot"
    return
  done
  return 1
}

GPU_MEM_RUN=$(realpath "$(mktemp -d /var/tmp/gpu-mem.XXXXXX)")
GPU_MEM_SLOT=$(free_slot) || { rmdir "$GPU_MEM_RUN"; echo "error: no free slot: is this root?" >&2 && exit 1; }
GPU_MEM_GPUS=fake
GPU_MEM_FAKE_STATE=$scripts/gpus/two.state
export GPU_MEM_SLOT GPU_MEM_RUN GPU_MEM_GPUS GPU_MEM_FAKE_STATE
source "$scripts/lib.sh"

finish() {
  "$scripts/dockerd.sh" stop >/dev/null
  our_mounts "" | xargs -r umount
  rm -rf --one-file-system "$GPU_MEM_RUN"
}
trap finish EXIT
trap 'exit 130' INT TERM

(($# > 0)) || usage "COMMAND..."
"$scripts/dockerd.sh" start >&2
"$scripts/image.sh" >&2
"$scripts/cdi.sh" >&2
GPU_MEM_TEST_GPUS=$(jq -r '[.devices[].name | select(. != "all")] | join(" ")' "$GPU_MEM_RUN/cdi/nvidia.json")
export GPU_MEM_TEST_GPUS FAKE_NVML_STATE
export GPU_MEM_TEST_IMAGE=gpu-mem/busybox:1 GPU_MEM_TEST_PAUSE_IMAGE=gpu-mem/pause:1
export DOCKER_HOST=unix://$GPU_MEM_RUN/docker.sock
"$@"
