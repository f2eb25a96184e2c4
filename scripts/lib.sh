# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# shellcheck shell=bash
# Functions that the scripts share: messages, waiting, and daemons with a pid
# file. Source it after `set -euo pipefail`.

source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

say() { printf '%s\n' "$*"; }

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

need_root() { ((EUID == 0)) || die "$(basename "$0") needs root: it runs a Docker engine and makes device nodes"; }

need() {
  local tool
  for tool; do
    command -v "$tool" >/dev/null || die "$tool is missing: run 'make deps tools' first"
  done
}

# wait_until SECONDS COMMAND...: true as soon as the command succeeds, false if
# it never does in that time.
wait_until() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < deadline)) || return 1
    sleep 0.2
  done
}

# A daemon NAME has $GPU_MEM_RUN/NAME.pid and $GPU_MEM_RUN/NAME.log. Its
# environment, which its children inherit, has the run directory as a mark: the
# kernel may have given the pid to another process.
mark=GPU_MEM_DAEMON_OF=$GPU_MEM_RUN

is_ours() { grep -qzxF -- "$mark" "/proc/$1/environ"; } 2>/dev/null

# daemon_pid NAME: its process id, if it is alive.
daemon_pid() {
  local pid
  pid=$(cat "$GPU_MEM_RUN/$1.pid" 2>/dev/null) && is_ours "$pid" && say "$pid"
}

# daemon_start NAME COMMAND...: starts it apart from this terminal. The log is
# kept across restarts.
daemon_start() {
  local name=$1
  shift
  mkdir -p "$GPU_MEM_RUN"
  setsid env "$mark" "$@" </dev/null >>"$GPU_MEM_RUN/$name.log" 2>&1 &
  say $! >"$GPU_MEM_RUN/$name.pid"
  wait_until 5 started $! || true
  disown
}

# A process has the mark only once it has executed its program.
started() { is_ours "$1" || gone "$1"; }

# daemon_ready NAME SECONDS COMMAND...: waits until the command succeeds. Prints
# the daemon's log if it ends or takes too long.
daemon_ready() {
  local name=$1 seconds=$2
  shift 2
  wait_until "$seconds" ready_or_dead "$name" "$@" && daemon_pid "$name" >/dev/null && return
  printf -- '--- last lines of %s\n' "$GPU_MEM_RUN/$name.log" >&2
  tail -n 20 "$GPU_MEM_RUN/$name.log" >&2
  daemon_pid "$name" >/dev/null || die "$name ended while it started"
  die "$name did not become ready within $seconds s"
}

ready_or_dead() {
  local name=$1
  shift
  "$@" || ! daemon_pid "$name"
}

# daemon_stop NAME [SECONDS]: sends SIGTERM, then SIGKILL.
daemon_stop() {
  local name=$1 seconds=${2:-15} pid
  if pid=$(daemon_pid "$name"); then
    kill -TERM "$pid" 2>/dev/null || true
    wait_until "$seconds" gone "$pid" || kill -KILL "$pid" 2>/dev/null || true
    wait_until 5 gone "$pid" || die "$name (pid $pid) does not end"
  fi
  rm -f "$GPU_MEM_RUN/$name.pid"
}

gone() { [[ ! -e /proc/$1 ]] || grep -q '^State:[[:space:]]*Z' "/proc/$1/status"; }

# our_pids: every process that a daemon of this cluster started, or is.
our_pids() {
  local dir
  for dir in /proc/[0-9]*; do
    if is_ours "${dir#/proc/}"; then say "${dir#/proc/}"; fi
  done
}

# our_mounts PREFIX: mount points under $GPU_MEM_RUN/PREFIX, the deepest first.
our_mounts() {
  awk -v prefix="$GPU_MEM_RUN/$1" 'index($2, prefix) == 1 { print $2 }' /proc/self/mounts | sort -r
}

# The slot belongs to the run directory in the alias of its bridge. Scripts of other run
# directories change neither the bridge nor anything else of the slot.
bridge=gpumem$GPU_MEM_SLOT

# slot_owner: the run directory; empty if there is no bridge, or one without an alias.
slot_owner() { ip link show "$bridge" 2>/dev/null | sed -n 's/^ *alias //p'; }

# slot_is_free: true if the slot has no cluster, this cluster, or one without its directory.
slot_is_free() {
  local owner
  owner=$(slot_owner)
  [[ -z $owner || $owner == "$GPU_MEM_RUN" || ! -d $owner ]]
}

need_slot() {
  slot_is_free || die "slot $GPU_MEM_SLOT is in use by the cluster in $(slot_owner): set GPU_MEM_SLOT to another number, or stop that cluster with GPU_MEM_RUN=$(slot_owner)"
}

usage() {
  printf 'usage: %s %s\n' "$(basename "$0")" "$1" >&2
  exit 2
}

# await PID TEXT: waits for a process, and shows the elapsed time on one line. If the output is
# not a terminal, it prints the line once.
await() {
  local began=$SECONDS
  if [[ ! -t 1 ]]; then
    say "$2"
    wait "$1"
    return
  fi
  while kill -0 "$1" 2>/dev/null; do
    printf '\r%s (%d:%02d so far)' "$2" $(((SECONDS - began) / 60)) $(((SECONDS - began) % 60))
    sleep 1
  done
  say ""
  wait "$1"
}

# quietly TEXT COMMAND...: runs a command, and shows its output only if it fails.
quietly() {
  local log
  log=$(mktemp)
  "${@:2}" >"$log" 2>&1 &
  if ! await $! "$1"; then
    cat "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}
