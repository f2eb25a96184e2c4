#!/usr/bin/env bash
# One Nomad agent, server and client, on the loopback address, with both
# plugins. Stopping it leaves its tasks running, as in production: a start
# finds them again. Usage: nomad.sh start|stop
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

address=127.0.0.1:$GPU_MEM_NOMAD_PORT
program=$GPU_MEM_ROOT/bin/nomad-gpu-mem

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
  enabled               = true
  servers               = ["127.0.0.1:$((GPU_MEM_NOMAD_PORT + 1))"]
  network_interface     = "lo"
  cni_path              = "/usr/lib/cni"
  bridge_network_name   = "gpunomad$GPU_MEM_SLOT"
  bridge_network_subnet = "10.214.$GPU_MEM_SLOT.0/24"
}
consul {
  address          = "127.0.0.1:$GPU_MEM_CONSUL_PORT"
  auto_advertise   = false
  server_auto_join = false
  client_auto_join = false
}
END
}

# Nomad's own driver: the images are made here, so it must never remove them.
write_docker_config() {
  cat >"$GPU_MEM_RUN/nomad.d/docker.hcl" <<END
plugin "docker" {
  config {
    endpoint    = "unix://$GPU_MEM_RUN/docker.sock"
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

write_plugin_config() {
  cat >"$GPU_MEM_RUN/nomad.d/gpu-mem.hcl" <<END
plugin "nomad-device-gpu-mem" {
  config {
    nvml_library  = "$NVML_LIBRARY"
    poll_interval = "1s"
$(table_block)
  }
}
plugin "nomad-driver-gpu-docker" {
  config {
    endpoint       = "unix://$GPU_MEM_RUN/docker.sock"
    nvidia_runtime = "$GPU_MEM_NVIDIA_RUNTIME"
    infra_image    = "gpu-mem/pause:1"
    state_dir      = "$GPU_MEM_RUN/state"
    volumes {
      enabled = true
    }
$(table_block)
  }
}
END
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
node_ready() {
  local driver=docker
  [[ ! -x $program ]] || driver=gpu-docker
  curl -fsS -m 2 "http://$address/v1/nodes" |
    jq -e --arg driver "$driver" '.[0] | .Status == "ready" and .Drivers[$driver].Healthy'
}

start() {
  need "$NOMAD" curl jq
  mkdir -p "$GPU_MEM_RUN/nomad.d" "$GPU_MEM_RUN/plugins"
  write_agent_config
  write_docker_config
  if [[ -x $program ]]; then
    link_plugins
    write_plugin_config
  fi
  # Plugins inherit the agent's environment, and so the simulated GPUs.
  daemon_pid nomad >/dev/null ||
    FAKE_NVML_STATE=$FAKE_NVML_STATE daemon_start nomad "$NOMAD" agent -config="$GPU_MEM_RUN/nomad.d"
  daemon_ready nomad 90 node_ready
  say "Nomad: ready at http://$address"
}

need_root
case ${1:-} in
  start) start ;;
  stop) daemon_stop nomad 30 && say "Nomad: stopped" ;;
  *) usage "start|stop" ;;
esac
