# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# shellcheck shell=bash
# shellcheck disable=SC2034 # what is set here is used by those who source it
# Settings of the development cluster, all with defaults. Sourced by every
# script and by make's recipes; README.md beside this file describes them.

GPU_MEM_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
: "${GPU_MEM_SLOT:=0}"
: "${GPU_MEM_RUN:=/var/lib/gpu-mem-dev/$GPU_MEM_SLOT}"
GPU_MEM_RUN=$(realpath -m "$GPU_MEM_RUN")
: "${GPU_MEM_CACHE:=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/nomad-gpu-mem}"
: "${GPU_MEM_STORE:=$(cat "$GPU_MEM_RUN/store" 2>/dev/null || echo file)}"
: "${GPU_MEM_NOMAD_PORT:=$((4646 + 10 * GPU_MEM_SLOT))}"
: "${GPU_MEM_NODES:=1}"
: "${GPU_MEM_ENGINES:=}"
: "${GPU_MEM_TRUSTED:=true}"
: "${GPU_MEM_DANGLING:=5m}"
: "${GPU_MEM_PROBATION:=30s}"
: "${GPU_MEM_ENGINE:=}"
: "${GPU_MEM_IMAGE_STORE:=}"
: "${GPU_MEM_CONSUL_PORT:=$((8500 + 10 * GPU_MEM_SLOT))}"

# A real driver has both a library and a control device; one of them alone is a
# remnant, or this is a container without a GPU.
if [[ -z ${GPU_MEM_GPUS:-} ]]; then
  GPU_MEM_GPUS=fake
  if [[ -c /dev/nvidiactl ]] && ldconfig -p | grep -q 'libnvidia-ml\.so\.1'; then
    GPU_MEM_GPUS=real
  fi
fi

# What the plugins load as NVML, and the state file of a simulated one.
NVML_LIBRARY=libnvidia-ml.so.1
[[ $GPU_MEM_GPUS == real ]] || NVML_LIBRARY=$GPU_MEM_ROOT/bin/libnvidia-ml.so.1
FAKE_NVML_STATE=$GPU_MEM_RUN/nvml.state
: "${GPU_MEM_NVIDIA_RUNTIME:=nvidia}"
: "${GPU_MEM_DEFAULT_RUNTIME:=runc}"
: "${GPU_MEM_DRIVER_NAME:=gpu-docker}"
: "${GPU_MEM_FAKE_STATE:=$GPU_MEM_ROOT/scripts/gpus/one.state}"

# An engine of the cache comes first on PATH: it overrides the machine's and one that another script chose.
PATH=${PATH//$GPU_MEM_CACHE\/docker[0-9][0-9]:/}
[[ -z $GPU_MEM_ENGINE ]] || PATH=$GPU_MEM_CACHE/docker$GPU_MEM_ENGINE:$PATH

# The rest of the cache comes last: the machine's tools are preferred.
case ":$PATH:" in
  *":$GPU_MEM_CACHE/bin:"*) ;;
  *) PATH=$PATH:/usr/sbin:/sbin:$GPU_MEM_CACHE/bin ;;
esac
: "${NOMAD:=$(command -v nomad || echo "$GPU_MEM_CACHE/bin/nomad")}"
: "${CONSUL:=$(command -v consul || echo "$GPU_MEM_CACHE/bin/consul")}"
GOLANGCI_LINT=$GPU_MEM_CACHE/bin/golangci-lint # the pinned one, always

# Settings derived from the slot are not exported: a test that starts a cluster
# in another slot must not inherit this one's ports.
export PATH NOMAD CONSUL GOLANGCI_LINT GPU_MEM_CACHE
