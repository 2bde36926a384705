#!/usr/bin/env bash
# Two hosts, one run: the coordinator and agents 1-3 on host A, agents 4-5 on host B, mTLS between all of them.
#
# A "host" here is a network namespace: its own interfaces, addresses and ports, joined to the other by one cable (a veth
# pair).  On two real machines the dpgt commands are the same; `pki init` runs once, and each folder is copied to its host.
#
#   sudo deploy/two-hosts/run.sh                     results in a temporary folder, removed at the end
#   sudo deploy/two-hosts/run.sh --out DIR           keep start-up folders, states, logs and results in DIR
#   sudo deploy/two-hosts/run.sh --run RUN.toml      another run file with agents agent-1 .. agent-5
#   deploy/two-hosts/run.sh --can-run                exit 0 when this machine can, else 1 with the reason
#
# Needs Linux, root and iproute2.  DPGT names the command (default: .venv/bin/dpgt of this checkout, else dpgt on PATH).
# Exit code: 0, or the first that is not 0 among the coordinator's and the agents'.
set -Eeuo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
readonly here root
readonly LIMIT_S=${LIMIT_S:-240}        # no process outlives this
readonly GRACE_S=15                     # between SIGTERM and SIGKILL
readonly A=dpgt-a-$$ B=dpgt-b-$$        # namespaces
readonly A_ADDR=10.77.0.1 B_ADDR=10.77.0.2
readonly COORDINATOR=$A_ADDR:7700

say() { printf '%s\n' "$*"; }
fail() { printf 'two-hosts: %s\n' "$*" >&2; exit 2; }

can_run() {
  [[ $(uname -s) == Linux ]] || { say "network namespaces need Linux"; return 1; }
  [[ $(id -u) == 0 ]] || { say "network namespaces need root"; return 1; }
  command -v ip >/dev/null || { say "no ip command: install iproute2"; return 1; }
  local probe=dpgt-probe-$$
  ip netns add "$probe" 2>/dev/null || { say "this machine does not let root make network namespaces"; return 1; }
  local rc=0
  ip netns exec "$probe" ip link set lo up 2>/dev/null || rc=1
  ip netns del "$probe"
  [[ $rc == 0 ]] || say "this machine does not let root enter network namespaces"
  return "$rc"
}

run_file=$root/deploy/run.toml
out=
while (($#)); do
  case $1 in
    --can-run) can_run; exit ;;
    --out) [[ $# -ge 2 ]] || fail "--out needs a folder"; out=$2; shift 2 ;;
    --run) [[ $# -ge 2 ]] || fail "--run needs a file"; run_file=$2; shift 2 ;;
    *) fail "unknown argument $1 (see the head of $0)" ;;
  esac
done
reason=$(can_run) || fail "$reason"
dpgt=${DPGT:-$root/.venv/bin/dpgt}
[[ -x $dpgt ]] || dpgt=$(command -v dpgt) || fail "no dpgt command: run make setup, or set DPGT"

pids=()
names=()
scratch=
alive=
sweeper=
# shellcheck disable=SC2317  # reached by the trap
cleanup() {
  local rc=$? pid
  trap - EXIT INT TERM HUP
  for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done   # each ends by itself: `timeout` sees to it
  if [[ -n $alive ]]; then
    exec {alive}>&-
    wait "$sweeper" || true
  fi
  [[ -z $scratch ]] || rm -rf "$scratch"
  exit "$rc"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

if [[ -z $out ]]; then
  scratch=$(mktemp -d)
  out=$scratch
fi
mkdir -p "$out/logs"
out=$(cd "$out" && pwd)

# ---------------------------------------------------------------- two hosts and a cable
# Whatever ends this script, SIGKILL included, ends both hosts: a pipe that nobody else holds open closes then.
sweep() {
  trap '' INT TERM HUP
  cat >/dev/null
  local host left
  for host in "$A" "$B"; do
    # Again until none is left: a process may have forked between the listing and the kill.
    while left=$(ip netns pids "$host" 2>/dev/null) && [[ -n $left ]]; do
      xargs kill -KILL <<<"$left" 2>/dev/null || true
      sleep 0.05
    done
    ip netns del "$host" 2>/dev/null || true
  done
}
exec {alive}> >(sweep >/dev/null 2>&1)
sweeper=$!

say "== two hosts: $A ($A_ADDR) and $B ($B_ADDR)"
ip netns add "$A"
ip netns add "$B"
ip link add cable netns "$A" type veth peer name cable netns "$B"
ip -n "$A" addr add "$A_ADDR/24" dev cable
ip -n "$B" addr add "$B_ADDR/24" dev cable
for host in "$A" "$B"; do
  ip -n "$host" link set lo up
  ip -n "$host" link set cable up
done

# ---------------------------------------------------------------- certificates and one start-up folder a host
say "== start-up folders"
"$dpgt" pki init "$run_file" --out "$out/hosts" \
  --host "coordinator=$COORDINATOR" \
  --host "agent-1=$A_ADDR:7701" --host "agent-2=$A_ADDR:7702" --host "agent-3=$A_ADDR:7703" \
  --host "agent-4=$B_ADDR:7701" --host "agent-5=$B_ADDR:7702"

# ---------------------------------------------------------------- daemons
start() { # HOST NAME COMMAND...
  local host=$1 name=$2
  shift 2
  # `ip netns exec` and `timeout` both become or forward to the command, so this pid is ours to end.  The pipe closes on
  # the host, not before: the sweep must not look while a process is still on its way there.
  # shellcheck disable=SC2016  # expanded by the inner shell
  ip netns exec "$host" bash -c 'fd=$1; shift; exec {fd}>&-; exec "$@"' "$name" "$alive" \
    timeout --kill-after="$GRACE_S" "$LIMIT_S" "$@" >"$out/logs/$name.log" 2>&1 </dev/null &
  pids+=($!)
  names+=("$name")
}
say "== agents 4 and 5 on host B, then everything on host A: the order does not matter"
for i in 4 5; do start "$B" "agent-$i" "$dpgt" node --config "$out/hosts/agent-$i/NODE.toml"; done
start "$A" coordinator "$dpgt" coordinator --config "$out/hosts/coordinator/run.toml" --listen "$COORDINATOR" \
  --tls "$out/hosts/coordinator" --out "$out/results"
for i in 1 2 3; do start "$A" "agent-$i" "$dpgt" node --config "$out/hosts/agent-$i/NODE.toml"; done

# ---------------------------------------------------------------- the end of the run
first=0
for index in "${!pids[@]}"; do
  rc=0
  wait "${pids[$index]}" || rc=$?
  say "   ${names[$index]}: exit $rc"
  if [[ $rc != 0 ]]; then
    tail -n 5 "$out/logs/${names[$index]}.log" | sed 's/^/      /'
    [[ $first != 0 ]] || first=$rc
  fi
done
pids=()
say "== what crossed the cable, seen from host A"
ip -n "$A" -s link show cable | sed -n '3,6p'
if [[ -e $out/results/summary.json ]]; then
  # Metrics stay with each agent: only who has all five folders can tell.
  worst=$(for i in 1 2 3 4 5; do
    awk -F, 'NR == 1 { for (c = 1; c <= NF; c++) if ($c == "accuracy_test") column = c } END { print $column }' \
      "$out/hosts/agent-$i/state/metrics.csv"
  done | sort -g | head -n 1 || true)
  say "== worst test accuracy of the five agents: ${worst:-none recorded}"
fi
[[ -n $scratch ]] || say "== report: $out/results/report.html"
exit "$first"
