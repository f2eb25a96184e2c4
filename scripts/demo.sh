#!/usr/bin/env bash
# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# The demo: starts a cluster on this machine with two tasks on one GPU, and prints
# the commands to inspect it. Succeeds only if both tasks run. Usage: demo.sh up|down
set -euo pipefail
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$scripts/lib.sh"

job=two-tasks
tasks=2

say_what_comes() {
  say "Cluster in $GPU_MEM_RUN; allocation table: $GPU_MEM_STORE"
  if [[ $GPU_MEM_GPUS == real ]]; then
    say "An NVIDIA driver is loaded: using the real NVML and the real GPUs."
  else
    say "No NVIDIA driver: simulating GPUs ($(basename "$GPU_MEM_FAKE_STATE")). All else is real."
  fi
}

allocations() { curl -fsS -m 2 "$NOMAD_ADDR/v1/job/$job/allocations"; }

running_tasks() {
  allocations | jq -r '.[] | select(.DesiredStatus == "run") | .TaskStates // {} | to_entries[] |
    select(.value.State == "running") | .key'
}

all_run() { (($(running_tasks | wc -l) == tasks)); }

# say_why_not: Nomad's status of the job and the last events of its tasks.
say_why_not() {
  "$NOMAD" job status "$job" || true
  allocations | jq -r '.[].TaskStates // {} | to_entries[] | "\(.key): \(.value.State)",
    (.value.Events[] | "  \(.Type): \(.DisplayMessage)")' || true
  say "Logs: $GPU_MEM_RUN/nomad.log"
}

run_job() {
  say "[7/7] Two tasks: 4 and 6 units of one GPU"
  "$NOMAD" job run -detach "$GPU_MEM_ROOT/example/two-tasks/two-tasks.nomad.hcl" >/dev/null
  wait_until 180 all_run && return
  say_why_not >&2
  die "after 180 s these tasks run: $(running_tasks | tr '\n' ' ')"
}

say_what_next() {
  say ""
  "$GPU_MEM_ROOT/bin/nomad-gpu-mem" status
  cat <<END

Both tasks run. To look further, in this shell:

  eval "\$(scripts/cluster.sh env)"
  bin/nomad-gpu-mem status            who holds which part of which GPU
  $NOMAD job status $job
  docker ps                           the containers of the private engine
  \$EDITOR $FAKE_NVML_STATE
                                      what the simulated GPU reports

  make demo-down                      stops everything
END
}

up() {
  say_what_comes
  GPU_MEM_STEPS=7 "$scripts/cluster.sh" up
  eval "$("$scripts/cluster.sh" env)"
  run_job
  say_what_next
}

our_interfaces() {
  local name
  slot_is_free || return 0
  for name in "gpumem$GPU_MEM_SLOT" "gpunomad$GPU_MEM_SLOT"; do
    ! ip link show "$name" >/dev/null 2>&1 || say "$name" # not in /sys, which may be another namespace's
  done
}

down() {
  local left
  "$scripts/cluster.sh" down
  left=$(our_pids; our_mounts ""; our_interfaces)
  [[ -z $left ]] || die "left behind:"$'\n'"$left"
  say "Nothing is left running."
}

case ${1:-} in
  up) up ;;
  down) down ;;
  *) usage "up|down" ;;
esac
