#!/usr/bin/env bash
# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# A whole cluster on one machine: Docker engine, GPUs, allocation table, Nomad.
#
#   up    installs, builds and starts what is missing; idempotent
#   down  stops everything, the tasks too, and removes the run directory
#   env   prints how to reach it, as `export` lines for eval
set -euo pipefail
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$scripts/lib.sh"

steps=${GPU_MEM_STEPS:-6} # demo.sh has more
number=0
step() { say "[$((++number))/$steps] $*"; }

# A running agent keeps the table with which it was started.
choose_store() {
  local before
  before=$(cat "$GPU_MEM_RUN/store" 2>/dev/null || true)
  if daemon_pid nomad >/dev/null && [[ $before != "$GPU_MEM_STORE" ]]; then
    die "a cluster with store '$before' runs in $GPU_MEM_RUN: stop it first"
  fi
  # `down` removes the directory, so it must not be one with other things in it.
  if [[ -z $before && -n $(find "$GPU_MEM_RUN" -mindepth 1 ! -path "$GPU_MEM_FAKE_STATE" 2>/dev/null | head -1) ]]; then
    die "$GPU_MEM_RUN holds something else than a cluster: give an empty directory"
  fi
  mkdir -p "$GPU_MEM_RUN"
  say "$GPU_MEM_STORE" >"$GPU_MEM_RUN/store"
}

up() {
  need_root
  need_slot
  choose_store
  step "Debian packages"
  "$scripts/deps.sh"
  "$scripts/host.sh" remember
  step "Tools, from $GPU_MEM_CACHE"
  "$scripts/tools.sh" nomad runtime
  [[ $GPU_MEM_STORE != consul ]] || "$scripts/tools.sh" consul
  step "Program and fake NVML"
  "$scripts/build.sh" program fakenvml
  step "Docker engine with NVIDIA's runtime, and its GPUs"
  "$scripts/dockerd.sh" start
  "$scripts/image.sh"
  "$scripts/cdi.sh"
  step "Allocation table"
  if [[ $GPU_MEM_STORE == consul ]]; then
    "$scripts/consul.sh" start
  else
    say "File: $GPU_MEM_RUN/table.json"
  fi
  step "Nomad with both plugins"
  "$scripts/nomad.sh" start
}

# Only a running agent removes what it made for its tasks: network namespaces,
# firewall rules, mounts.
end_jobs() {
  local namespace job
  daemon_pid nomad >/dev/null || return 0
  eval "$(environment)"
  while read -r namespace job; do
    "$NOMAD" job stop -namespace="$namespace" -detach -purge -yes "$job" >/dev/null || true
  done < <("$NOMAD" operator api '/v1/jobs?namespace=*' | jq -r '.[] | "\(.Namespace) \(.ID)"')
  wait_until 30 no_containers || say "some tasks have not ended by themselves"
}

no_containers() { [[ -z $(docker ps -q) ]]; }

# Nomad's log helpers and its changes to the host outlive the agent.
end_remains() {
  local pid
  for pid in $(our_pids); do
    kill -KILL "$pid" 2>/dev/null || true
    wait_until 5 gone "$pid" || die "process $pid does not end"
  done
  our_mounts "" | xargs -r umount
  "$scripts/host.sh" restore
}

down() {
  need_root
  end_jobs
  "$scripts/nomad.sh" stop
  "$scripts/dockerd.sh" stop
  "$scripts/consul.sh" stop
  end_remains
  [[ ! -e $GPU_MEM_RUN/store ]] || rm -rf --one-file-system "$GPU_MEM_RUN"
}

environment() {
  say "export NOMAD_ADDR=http://127.0.0.1:$GPU_MEM_NOMAD_PORT"
  say "export DOCKER_HOST=unix://$GPU_MEM_RUN/docker.sock"
  say "export FAKE_NVML_STATE=$FAKE_NVML_STATE"
  say "export GPU_MEM_TABLE_STORE=$GPU_MEM_STORE"
  if [[ $GPU_MEM_STORE == consul ]]; then
    say "export CONSUL_HTTP_ADDR=http://127.0.0.1:$GPU_MEM_CONSUL_PORT"
  else
    say "export GPU_MEM_TABLE_PATH=$GPU_MEM_RUN/table.json"
  fi
}

case ${1:-} in
  up) up ;;
  down) down ;;
  env) environment ;;
  *) usage "up|down|env" ;;
esac
