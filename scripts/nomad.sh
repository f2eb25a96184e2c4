#!/usr/bin/env bash
# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# One Nomad agent, server and client, on the loopback address, with both
# plugins; with GPU_MEM_NODES more agents that are clients only. The GPUs are
# distributed among the nodes, evenly and in order. After a stop the tasks keep
# running, as in production, and a start recovers them.
# Usage: nomad.sh start|stop
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

address=127.0.0.1:$GPU_MEM_NOMAD_PORT
program=$GPU_MEM_ROOT/bin/nomad-gpu-mem

# Node 0 is the server too. The others have a number in their paths and use the
# ports behind those of the server.
dir_of() { say "$GPU_MEM_RUN/nomad${1#0}.d"; }

# Groups of all nodes share one bridge, and CNI assigns its addresses.
bridge_settings() {
  cat <<END
  cni_path              = "/usr/lib/cni"
  bridge_network_name   = "gpunomad$GPU_MEM_SLOT"
  bridge_network_subnet = "10.214.$GPU_MEM_SLOT.0/24"
END
}

write_client_config() {
  cat >"$(dir_of "$1")/agent.hcl" <<END
name                 = "node-$1"
data_dir             = "$GPU_MEM_RUN/nomad$1"
plugin_dir           = "$GPU_MEM_RUN/plugins"
bind_addr            = "127.0.0.1"
disable_update_check = true
log_level            = "DEBUG"
advertise {
  http = "127.0.0.1"
  rpc  = "127.0.0.1"
  serf = "127.0.0.1"
}
ports {
  http = $((GPU_MEM_NOMAD_PORT + 2 + $1))
}
client {
  enabled           = true
  servers           = ["127.0.0.1:$((GPU_MEM_NOMAD_PORT + 1))"]
  network_interface = "lo"
$(bridge_settings)
}
consul {
  address          = "127.0.0.1:$GPU_MEM_CONSUL_PORT"
  auto_advertise   = false
  client_auto_join = false
}
END
}

write_agent_config() {
  cat >"$GPU_MEM_RUN/nomad.d/agent.hcl" <<END
region               = "global"
data_dir             = "$GPU_MEM_RUN/nomad"
plugin_dir           = "$GPU_MEM_RUN/plugins"
bind_addr            = "127.0.0.1"
disable_update_check = true
log_level            = "DEBUG"
advertise {
  http = "127.0.0.1"
  rpc  = "127.0.0.1"
  serf = "127.0.0.1"
}
ports {
  http = $GPU_MEM_NOMAD_PORT
  rpc  = $((GPU_MEM_NOMAD_PORT + 1))
  serf = $((GPU_MEM_NOMAD_PORT + 2))
}
server {
  enabled          = true
  bootstrap_expect = 1
  raft_multiplier  = 1
}
client {
  enabled           = true
  servers           = ["127.0.0.1:$((GPU_MEM_NOMAD_PORT + 1))"]
  network_interface = "lo"
$(bridge_settings)
  meta {
    "connect.sidecar_image" = "gpu-mem/pause:1" # there is no Envoy here
  }
  host_network "lan" {
    interface = "gpumem$GPU_MEM_SLOT"
  }
  host_volume "shared" {
    path = "$GPU_MEM_RUN/volume"
  }
}
plugin "raw_exec" {
  config {
    enabled = true
  }
}
consul {
  address          = "127.0.0.1:$GPU_MEM_CONSUL_PORT"
  grpc_address     = "127.0.0.1:$((GPU_MEM_CONSUL_PORT + 3))"
  auto_advertise   = false
  server_auto_join = false
  client_auto_join = false
}
END
}

# The images are made here, so neither driver may remove them.
write_docker_config() {
  cat >"$(dir_of "$1")/docker.hcl" <<END
plugin "docker" {
  config {
    endpoint    = "$(engine_of "$1")"
    infra_image = "gpu-mem/pause:1"
    gc {
      image = false
    }
    volumes {
      enabled = true
    }
  }
}
END
}

# engine_of NODE: the endpoint of its engine. All nodes share the cluster's engine,
# unless GPU_MEM_ENGINES names one for each.
engine_of() {
  local engines=()
  read -ra engines <<<"$GPU_MEM_ENGINES"
  say "${engines[$1]:-unix://$GPU_MEM_RUN/docker.sock}"
}

# Nodes that share an engine would remove each other's containers as dangling.
write_plugin_config() {
  local dangling=true
  ((GPU_MEM_NODES == 1)) || [[ -n $GPU_MEM_ENGINES ]] || dangling=false
  cat >"$(dir_of "$1")/gpu-mem.hcl" <<END
plugin "nomad-device-gpu-mem" {
  config {
    nvml_library  = "$NVML_LIBRARY"
    poll_interval = "1s"
    probation     = "$GPU_MEM_PROBATION"
    include       = [$(gpus_of "$1")]
$(table_block)
  }
}
plugin "nomad-driver-gpu-docker" {
  args = ["--driver-name=$GPU_MEM_DRIVER_NAME"]
  config {
    endpoint         = "$(engine_of "$1")"
    nvidia_runtime   = "$GPU_MEM_NVIDIA_RUNTIME"
    infra_image      = "gpu-mem/pause:1"
    state_dir        = "$GPU_MEM_RUN/state${1#0}"
    allow_privileged = $GPU_MEM_TRUSTED
    volumes {
      enabled = $GPU_MEM_TRUSTED
    }
    gc {
      image = false
      dangling_containers {
        enabled        = $dangling
        period         = "$GPU_MEM_DANGLING"
        creation_grace = "$GPU_MEM_DANGLING"
      }
    }
$(table_block)
  }
}
END
}

# gpus_of NODE: the UUIDs of the node's GPUs, as a list in HCL. A single node has
# all GPUs, also those added later.
gpus_of() {
  ((GPU_MEM_NODES > 1)) || return 0
  awk -F ' *= *' -v node="$1" -v nodes="$GPU_MEM_NODES" '
    $1 ~ /^ *uuid$/ { uuid[count++] = $2 }
    END {
      for (i = int(node * count / nodes); i < int((node + 1) * count / nodes); i++)
        printf "\"%s\", ", uuid[i]
    }' "$FAKE_NVML_STATE"
}

table_block() {
  if [[ $GPU_MEM_STORE == consul ]]; then
    printf '    table {\n      store   = "consul"\n      address = "127.0.0.1:%s"\n    }\n' "$GPU_MEM_CONSUL_PORT"
  else
    printf '    table {\n      store = "file"\n      path  = "%s/table.json"\n    }\n' "$GPU_MEM_RUN"
  fi
}

# One program under two names: a process serves one type of plugin.
link_plugins() {
  local name
  for name in nomad-device-gpu-mem nomad-driver-gpu-docker; do
    ln -sfn "$program" "$GPU_MEM_RUN/plugins/$name"
  done
}

# Ready means that tasks can be started: drivers are found after the node is.
nodes_ready() {
  local driver=docker
  [[ ! -x $program ]] || driver=$GPU_MEM_DRIVER_NAME
  curl -fsS -m 2 "http://$address/v1/nodes" | jq -e --arg driver "$driver" --argjson nodes "$1" \
    'map(select(.Status == "ready" and .Drivers[$driver].Healthy)) | length >= $nodes'
}

# start_node NODE: writes its configuration and starts its agent.
start_node() {
  local daemon=nomad${1#0} host=()
  # The table identifies a node by its host name, so each of several gets its own.
  # shellcheck disable=SC2016 # the inner shell expands it
  ((GPU_MEM_NODES == 1)) || host=(unshare --uts sh -c 'hostname "$0" && exec "$@"' "node-$1")
  mkdir -p "$(dir_of "$1")"
  if (($1 == 0)); then write_agent_config; else write_client_config "$1"; fi
  write_docker_config "$1"
  [[ ! -x $program ]] || write_plugin_config "$1"
  # Plugins inherit the agent's environment, and so the simulated GPUs and the node's number.
  daemon_pid "$daemon" >/dev/null ||
    FAKE_NVML_STATE=$FAKE_NVML_STATE GPU_MEM_NODE=$1 daemon_start "$daemon" "${host[@]}" "$NOMAD" agent -config="$(dir_of "$1")"
  daemon_ready "$daemon" 90 nodes_ready $(($1 + 1))
}

start() {
  local node
  need "$NOMAD" curl jq
  mkdir -p "$GPU_MEM_RUN/plugins" "$GPU_MEM_RUN/volume"
  [[ ! -x $program ]] || link_plugins
  for ((node = 0; node < GPU_MEM_NODES; node++)); do start_node "$node"; done
  say "Nomad: ready at http://$address"
}

# The server stops last, since clients deregister with it.
stop() {
  local node
  for ((node = GPU_MEM_NODES - 1; node >= 0; node--)); do daemon_stop "nomad${node#0}" 30; done
  say "Nomad: stopped"
}

need_root
case ${1:-} in
  start) start ;;
  stop) stop ;;
  *) usage "start|stop" ;;
esac
