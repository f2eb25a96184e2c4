#!/usr/bin/env bash
# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# Starts and stops a demo in its own namespaces, with a job that has its own network,
# for which Nomad and CNI change the host. Prints the host's state before and after.
# Usage: demo.sh STORE
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

state() {
  local name
  echo "== $1"
  echo "forwarding: $(cat /proc/sys/net/ipv4/ip_forward)"
  ip -o link | awk -F': ' '{ print "interface:", $2 }'
  iptables-save | grep -E '^(-A|:[^ ]+ -)' | sed 's/^/firewall: /' || true # not the counters, nor empty tables
  awk '$2 ~ "^(/run|/var/lib|/sys)(/|$)" { print "mount:", $2 }' /proc/self/mounts # others have mounts elsewhere
  find /run/netns /run/gpu-mem-dev /etc/cni /var/lib/cni 2>/dev/null | sed 's/^/path: /' || true
  find "$GPU_MEM_RUN" 2>/dev/null | sed 's/^/path: /' || true
  for name in nomad consul dockerd containerd runc; do pgrep "$name" | sed "s/.*/process: $name/" || true; done
  echo "== end"
}

bridged() {
  cat <<'END'
job "bridged" {
  group "web" {
    network {
      mode = "bridge"
      port "http" { to = 80 }
    }
    task "web" {
      driver = "gpu-docker"
      config {
        image   = "gpu-mem/busybox:1"
        command = "sleep"
        args    = ["infinity"]
      }
      resources {
        cpu    = 20
        memory = 32
      }
    }
  }
}
END
}

state before
trap 'make demo-down STORE=$1; state after' EXIT
make demo "STORE=$1"
eval "$(scripts/cluster.sh env)"
bridged >"$GPU_MEM_RUN/bridged.nomad.hcl"
"$NOMAD" job run "$GPU_MEM_RUN/bridged.nomad.hcl"
echo "== changed: forwarding $(cat /proc/sys/net/ipv4/ip_forward), $(iptables -S | grep -c 'CNI\|NOMAD') rules and chains"
