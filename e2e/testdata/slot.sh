#!/usr/bin/env bash
# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# Two run directories and one slot: shows what the scripts of the second directory do to
# the bridges of the first. Usage: slot.sh DIRECTORY
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export GPU_MEM_SLOT=7 GPU_MEM_GPUS=fake
first=$1/first second=$1/second
mkdir -p "$first" "$second"

bridges() { ip -o link | awk -F': ' '/gpumem7|gpunomad7/ { print $2 }' | sort | xargs echo "$1:"; }

claim() { ip link add gpumem7 type bridge && ip link set gpumem7 alias "$1"; }

claim "$first"
ip link add gpunomad7 type bridge
GPU_MEM_RUN=$second scripts/cluster.sh down >/dev/null
bridges "after another's down"
! GPU_MEM_RUN=$second timeout 20 scripts/cluster.sh up 2>&1 || echo "another's up succeeded"
GPU_MEM_RUN=$first scripts/cluster.sh down >/dev/null
bridges "after its own down"

# A removed directory has no cluster any more.
claim "$1/removed"
GPU_MEM_RUN=$second bash -c 'source scripts/lib.sh && need_slot && echo "free again"'
