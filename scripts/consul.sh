#!/usr/bin/env bash
# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# One Consul server on the loopback address, with the settings that Connect needs. Its data stays in the
# run directory, so the table survives a restart. Usage: consul.sh start|stop
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

address=127.0.0.1:$GPU_MEM_CONSUL_PORT

write_config() {
  cat >"$GPU_MEM_RUN/consul.json" <<END
{
  "server": true,
  "bootstrap_expect": 1,
  "node_name": "node-$GPU_MEM_SLOT",
  "data_dir": "$GPU_MEM_RUN/consul",
  "bind_addr": "127.0.0.1",
  "client_addr": "127.0.0.1",
  "ports": {
    "http": $GPU_MEM_CONSUL_PORT,
    "server": $((GPU_MEM_CONSUL_PORT + 1)),
    "serf_lan": $((GPU_MEM_CONSUL_PORT + 2)),
    "grpc": $((GPU_MEM_CONSUL_PORT + 3)),
    "serf_wan": -1, "dns": -1, "grpc_tls": -1
  },
  "connect": {"enabled": true},
  "performance": {"raft_multiplier": 1},
  "disable_update_check": true
}
END
}

# A leader that answers is not enough: right after its election writes fail.
takes_writes() {
  curl -fsS -m 2 -X PUT -d ready "http://$address/v1/kv/.ready" | grep -q true &&
    curl -fsS -m 2 -X DELETE "http://$address/v1/kv/.ready"
}

start() {
  need "$CONSUL" curl
  mkdir -p "$GPU_MEM_RUN"
  write_config
  daemon_pid consul >/dev/null || daemon_start consul "$CONSUL" agent -config-file="$GPU_MEM_RUN/consul.json"
  daemon_ready consul 60 takes_writes
  say "Consul: ready at http://$address"
}

case ${1:-} in
  start) start ;;
  stop) daemon_stop consul && say "Consul: stopped" ;;
  *) usage "start|stop" ;;
esac
