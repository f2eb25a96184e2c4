#!/usr/bin/env bash
# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# Writes the CDI spec that lists a GPU's devices for NVIDIA's container runtime.
# For real GPUs NVIDIA's own generator writes it. A simulated GPU is a null
# device, so that a test can see whether a container has it. The state file of the
# fake NVML, $GPU_MEM_RUN/nvml.state, lists the simulated GPUs.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

kind=nvidia.com/gpu
spec=$GPU_MEM_RUN/cdi/nvidia.json

# simulated STATE-FILE: lines "INDEX UUID", in the order of the file.
simulated() { awk -F ' *= *' '$1 ~ /^ *uuid$/ { print n++, $2 }' "$1"; }

# node INDEX: makes the device node on the host and prints it in CDI's form.
node() {
  local path=$GPU_MEM_RUN/dev/nvidia$1
  [[ -c $path ]] || mknod -m 666 "$path" c 1 3
  jq -n --arg host "$path" --arg path "/dev/nvidia$1" '{path: $path, hostPath: $host}'
}

device() { jq -n --arg name "$1" --argjson nodes "$2" '{name: $name, containerEdits: {deviceNodes: $nodes}}'; }

# The device "all" is what NVIDIA_VISIBLE_DEVICES=all means.
devices() {
  local index uuid nodes=()
  while read -r index uuid; do
    nodes+=("$(node "$index")")
    device "$uuid" "[${nodes[-1]}]"
  done < <(simulated "$FAKE_NVML_STATE")
  device all "$(jq -s . <<<"${nodes[*]}")"
}

need_root
need jq
mkdir -p "$GPU_MEM_RUN/cdi" "$GPU_MEM_RUN/dev"
if [[ $GPU_MEM_GPUS == real ]]; then
  nvidia-ctk cdi generate --device-name-strategy=uuid --format=json --output="$spec" 2>>"$GPU_MEM_RUN/cdi.log" ||
    die "nvidia-ctk cannot describe the GPUs, see $GPU_MEM_RUN/cdi.log"
else
  [[ -e $FAKE_NVML_STATE ]] || cp "$GPU_MEM_FAKE_STATE" "$FAKE_NVML_STATE"
  devices | jq -s --arg kind "$kind" '{cdiVersion: "0.5.0", kind: $kind, devices: .}' >"$spec"
fi
say "GPUs ($GPU_MEM_GPUS): $(jq -r '[.devices[].name | select(. != "all")] | join(" ")' "$spec")"
