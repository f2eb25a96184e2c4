#!/usr/bin/env bash
# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# A private Docker engine with its own socket, data, containerd and bridge, so
# that it does not affect another engine of the machine. It has the runtime
# `nvidia` and changes neither firewall rules nor kernel settings.
#
#   start    idempotent
#   stop     stops the containers too; leaves no process, mount or bridge
#   restart  of the engine alone; containers keep running, and GPU_MEM_ENGINE may name another engine than before
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

address=10.213.$GPU_MEM_SLOT.1/24
socket=$GPU_MEM_RUN/docker.sock
export DOCKER_HOST=unix://$socket

make_bridge() {
  need_slot
  ip link show "$bridge" >/dev/null 2>&1 || ip link add "$bridge" type bridge
  ip link set "$bridge" alias "$GPU_MEM_RUN"
  ip address replace "$address" dev "$bridge"
  ip link set "$bridge" up
}

# dockerd would share a containerd that already runs.
write_containerd_config() {
  cat >"$GPU_MEM_RUN/containerd.toml" <<END
version = 2
root = "$GPU_MEM_RUN/containerd"
state = "$GPU_MEM_RUN/containerd-state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
address = "$GPU_MEM_RUN/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
path = "$GPU_MEM_RUN/containerd-opt"
END
}

# engine_major: 20 of Docker Engine 20.10.24.
engine_major() { dockerd --version | sed -n 's/^Docker version \([0-9]*\)\..*/\1/p'; }

# engine_features: settings that only this engine's version supports, as lines of its configuration. CDI needs 25.
engine_features() {
  local features=('"cdi": true')
  (($(engine_major) >= 25)) || return 0
  case $GPU_MEM_IMAGE_STORE in
    containerd) features+=('"containerd-snapshotter": true') ;;
    docker) features+=('"containerd-snapshotter": false') ;;
    '') ;;
    *) die "GPU_MEM_IMAGE_STORE is '$GPU_MEM_IMAGE_STORE': containerd, docker or empty for the engine's choice" ;;
  esac
  say "\"cdi-spec-dirs\": [\"$GPU_MEM_RUN/cdi\"],"
  say "\"features\": {$(IFS=,; say "${features[*]}")},"
}

write_dockerd_config() {
  cat >"$GPU_MEM_RUN/dockerd.json" <<END
{
  "hosts": ["$DOCKER_HOST"],
  "containerd": "$GPU_MEM_RUN/containerd.sock",
  "data-root": "$GPU_MEM_RUN/docker",
  "exec-root": "$GPU_MEM_RUN/docker-exec",
  "pidfile": "$GPU_MEM_RUN/docker-exec.pid",
  "exec-opts": ["native.cgroupdriver=cgroupfs"],
  $(engine_features)
  "live-restore": true,
  "bridge": "$bridge",
  "iptables": false,
  "ip-masq": false,
  "ip-forward": false,
  "userland-proxy": true,
  "default-runtime": "$GPU_MEM_DEFAULT_RUNTIME",
  "runtimes": {"nvidia": {"path": "$GPU_MEM_RUN/nvidia-runtime"}}
}
END
}

# NVIDIA's runtime finds its configuration under XDG_CONFIG_HOME, else in /etc.
write_runtime() {
  mkdir -p "$GPU_MEM_RUN/config/nvidia-container-runtime" "$GPU_MEM_RUN/cdi"
  cat >"$GPU_MEM_RUN/config/nvidia-container-runtime/config.toml" <<END
[nvidia-container-runtime]
mode = "cdi"
runtimes = ["$(command -v runc)"]
debug = "$GPU_MEM_RUN/nvidia-runtime.log"
[nvidia-container-runtime.modes.cdi]
default-kind = "nvidia.com/gpu"
spec-dirs = ["$GPU_MEM_RUN/cdi"]
END
  cat >"$GPU_MEM_RUN/nvidia-runtime" <<END
#!/bin/sh
XDG_CONFIG_HOME=$GPU_MEM_RUN/config exec $(command -v nvidia-container-runtime) "\$@"
END
  chmod 755 "$GPU_MEM_RUN/nvidia-runtime"
}

# A killed engine leaves its pid file, with which a new one does not start.
start_engine() {
  write_dockerd_config
  if ! daemon_pid dockerd >/dev/null; then
    rm -f "$GPU_MEM_RUN/docker-exec.pid"
    daemon_start dockerd dockerd --config-file "$GPU_MEM_RUN/dockerd.json"
  fi
  daemon_ready dockerd 60 docker version
}

# about_engine: the versions in use, for the record of a suite.
about_engine() {
  docker version --format '{{.Server.Version}} (API {{.Server.APIVersion}})' | tr '\n' ' '
  docker info --format 'with {{.Driver}}' 2>/dev/null | tr '\n' ' '
  say "on $(containerd --version | awk '{ print "containerd", $3 }') and $(runc --version | head -n 1)"
}

start() {
  need dockerd containerd runc docker ip nvidia-container-runtime
  ((${#socket} < 100)) || die "GPU_MEM_RUN is too long for a socket: $GPU_MEM_RUN"
  mkdir -p "$GPU_MEM_RUN"
  make_bridge
  write_containerd_config
  write_runtime
  daemon_pid containerd >/dev/null || daemon_start containerd containerd --config "$GPU_MEM_RUN/containerd.toml"
  daemon_ready containerd 30 test -S "$GPU_MEM_RUN/containerd.sock"
  start_engine
  say "Docker engine: $(about_engine), ready at $DOCKER_HOST"
}

# Containers outlive a dead engine; the low-level runtime still knows them.
end_containers() {
  local state
  if daemon_pid dockerd >/dev/null; then
    docker ps -aq | xargs -r timeout 60 docker rm -f >/dev/null || true
  fi
  for state in "$GPU_MEM_RUN"/docker-exec/runtime-*/moby/*/state.json; do
    [[ -e $state ]] || continue
    state=$(dirname "$state")
    runc --root "$(dirname "$state")" delete --force "$(basename "$state")" || true
  done
}

end_shims() {
  local pid
  for pid in $(pgrep -f "containerd-shim.*$GPU_MEM_RUN/containerd.sock" || true); do
    kill -KILL "$pid" 2>/dev/null || true
    wait_until 5 gone "$pid" || die "containerd-shim (pid $pid) does not end"
  done
}

stop() {
  end_containers
  daemon_stop dockerd 30
  end_shims
  daemon_stop containerd
  our_mounts docker | xargs -r umount
  our_mounts containerd | xargs -r umount
  [[ $(slot_owner) != "$GPU_MEM_RUN" ]] || ip link delete "$bridge"
  rm -f "$socket"
  say "Docker engine: stopped"
}

need_root
case ${1:-} in
  start) start ;;
  stop) stop ;;
  restart) daemon_stop dockerd 30 && start_engine ;;
  *) usage "start|stop|restart" ;;
esac
