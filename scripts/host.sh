#!/usr/bin/env bash
# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# Handles a cluster's changes to its host outside the run directory: Nomad's
# bridge, and the firewall rules, assigned addresses and IPv4 forwarding of CNI,
# for tasks with their own network.
#
#   remember  records the host's state; the first of several clusters does it
#   restore   removes this cluster's changes; the last cluster restores the state
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

notes=/run/gpu-mem-dev
forwarding=/proc/sys/net/ipv4/ip_forward
addresses=/var/lib/cni
namespaces=/run/netns
subnet=10.214.$GPU_MEM_SLOT
nomad_bridge=gpunomad$GPU_MEM_SLOT

# One cluster at a time reads or writes the record; no lock file remains.
lock() { exec 8</run && flock 8; }

chains() { iptables -t "$1" -S | awk '$1 == "-N" { print $2 }'; }
is_new() { ! grep -qxF -- "$2" "$notes/chains.$1"; }

remember() {
  local table path
  lock
  if mkdir "$notes" 2>/dev/null; then
    cat "$forwarding" >"$notes/forwarding"
    iptables-save | awk '/^\*/ { print substr($1, 2) }' >"$notes/tables"
    for table in filter nat; do chains "$table" >"$notes/chains.$table"; done
    for path in "$addresses" "$namespaces"; do [[ ! -e $path ]] || say "$path"; done >"$notes/paths"
  fi
  touch "$notes/slot.$GPU_MEM_SLOT"
}

# delete_rules TABLE TEXT: deletes all rules that contain the text, from the end of
# a chain, since rules are identified by their numbers.
delete_rules() {
  local chain number
  while read -r chain number; do
    iptables -t "$1" -D "$chain" "$number"
  done < <(iptables -t "$1" -S | awk -v text="$2" '$1 == "-A" { n[$2]++; if (index($0 " ", text)) print $2, n[$2] }' | tac)
}

delete_chain() {
  delete_rules "$1" "-j $2 "
  iptables -t "$1" -F "$2"
  iptables -t "$1" -X "$2"
}

# Removes what CNI left in this table for addresses of this cluster: a task's
# chains, references to them, and rules.
end_addresses() {
  local table=$1 chain
  for chain in $(iptables -t "$table" -S | awk -v a=" $subnet." '/^-A CNI-(DN-)?[0-9a-f]+ / && index($0, a) { print $2 }' | sort -u); do
    delete_chain "$table" "$chain"
  done
  delete_rules "$table" " $subnet."
}

# The chains that all tasks share, and the tables created for them.
end_chains() {
  local table=$1 chain all
  all=$(chains "$table" | grep -E '^(CNI|NOMAD)-' || true)
  for chain in $all; do ! is_new "$table" "$chain" || iptables -t "$table" -F "$chain"; done
  for chain in $all; do ! is_new "$table" "$chain" || delete_chain "$table" "$chain"; done
  # An empty table has no effect, and only nft can delete it.
  if command -v nft >/dev/null && ! grep -qx "$table" "$notes/tables" && ! iptables -t "$table" -S | grep -q '^-[AN]'; then
    nft delete table ip "$table" 2>/dev/null || true
  fi
}

# end_path PATH: removes a directory that did not exist before and is empty now.
end_path() {
  if grep -qxF "$1" "$notes/paths"; then return; fi
  while umount "$1" 2>/dev/null; do :; done # Nomad mounts it on itself
  find "$1" -depth -type d -empty -delete 2>/dev/null || true
}

is_last() { [[ -d $notes ]] && ! compgen -G "$notes/slot.*" >/dev/null; }

restore() {
  local table
  slot_is_free || return 0 # all of it is another cluster's
  ip link delete "$nomad_bridge" 2>/dev/null || true
  for table in filter nat; do end_addresses "$table"; done
  rm -f "$addresses/networks/nomad/$subnet".*
  lock
  rm -f "$notes/slot.$GPU_MEM_SLOT"
  is_last || return 0
  for table in filter nat; do end_chains "$table"; done
  rm -f "$addresses"/networks/nomad/{lock,last_reserved_ip.*}
  end_path "$addresses"
  end_path "$namespaces"
  cat "$notes/forwarding" >"$forwarding"
  rm -r "$notes"
}

need_root
case ${1:-} in
  remember) remember ;;
  restore) restore ;;
  *) usage "remember|restore" ;;
esac
