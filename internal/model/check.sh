#!/usr/bin/env bash
# Checks the model. Each line of the table below is a configuration; those that are wrong on purpose have to be refuted, or
# the model could not see what it is there for. Needs spin and a C compiler.
#
#	check.sh            all of it
#	check.sh story NAME shows the shortest way in which a wrong variant fails
set -euo pipefail
cd "$(dirname "$0")"

# name | switches | holds or fails | safety or progress
table='
keyed, 3 faults              | -DFAULTS=3                                    | holds | safety
keyed, strict                | -DFAULTS=2 -DSTRICT=1                         | holds | safety
keyed, no look-up            | -DFAULTS=3 -DLOOKUP=0                         | holds | safety
unkeyed                      | -DFAULTS=3 -DKEYED=0                          | holds | safety
unkeyed, strict              | -DFAULTS=2 -DKEYED=0 -DSTRICT=1               | holds | safety
unkeyed, resend permitted    | -DFAULTS=3 -DKEYED=0 -DRESEND=1               | holds | safety
unkeyed, no look-up          | -DFAULTS=3 -DKEYED=0 -DLOOKUP=0               | holds | safety
keyed                        | -DFAULTS=1                                    | holds | progress
unkeyed, resend permitted    | -DFAULTS=1 -DKEYED=0 -DRESEND=1 -DMESSAGES=1  | holds | progress
unkeyed, no look-up          | -DFAULTS=1 -DKEYED=0 -DLOOKUP=0 -DMESSAGES=1  | holds | progress
ack before commit            | -DACK_FIRST -DMESSAGES=1                      | fails | safety
no fence                     | -DNO_FENCE -DKEYED=0 -DRESEND=1               | fails | safety
blind resend                 | -DBLIND -DKEYED=0 -DMESSAGES=1                | fails | safety
no gate                      | -DNO_GATE -DKEYED=0 -DRESEND=1 -DMESSAGES=1   | fails | safety
forgetful release            | -DFORGETFUL -DKEYED=0 -DFAULTS=3 -DMESSAGES=1 | fails | safety
one reading, not settled     | -DONE_READING -DKEYED=0 -DMESSAGES=1          | fails | safety
'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# build SWITCHES MODE makes the checker in the working folder.
build() {
  local cc=(-O2 -w -DMEMLIM=3000 -DCOLLAPSE) spin=()
  case $2 in
    safety) cc+=(-DSAFETY) ;;
    shortest) cc+=(-DSAFETY -DBFS) ;;
    progress) cc+=(-DNFAIR=4) spin+=(-DPROGRESS) ;;
  esac
  cp settle.pml "$work"
  # shellcheck disable=SC2086 # the switches are words
  (cd "$work" && spin -a $1 "${spin[@]}" settle.pml >spin.log && "${CC:-cc}" "${cc[@]}" -o pan pan.c)
}

run() {
  case $1 in
    progress) "$work/pan" -a -f -m1000000 -w23 ;;
    safety) "$work/pan" -m1000000 -w23 ;;
    shortest) "$work/pan" -m100000 ;;
  esac >"$work/pan.log" 2>&1 || true
}

# one NAME SWITCHES EXPECTED MODE
one() {
  local errors states why since=$SECONDS
  rm -f "$work"/*.trail
  build "$2" "$4"
  (cd "$work" && run "$4")
  errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' "$work/pan.log")
  states=$(awk '/states, stored/ {print $1}' "$work/pan.log" | head -n 1)
  if grep -q -e 'depth too small' -e 'MEMLIM' -e 'out of memory' "$work/pan.log"; then errors=incomplete; why="search cut short"; fi
  why=$(sed -n 's/^pan:1: \(.*\) (at depth.*/\1/p' "$work/pan.log")
  printf '%-28s %-8s %9s states %3d s  %s\n' "$1" "$4" "$states" "$((SECONDS - since))" "${why:-holds}"
  case $3:$errors in
    holds:0 | fails:[1-9]*) return 0 ;;
  esac
  echo "  expected: $3" >&2
  return 1
}

trim() { sed 's/^ *//; s/ *$//' <<<"$1"; }

# each FUNCTION calls it with the trimmed fields of every line.
each() {
  local name switches expected mode bad=0
  while IFS='|' read -r name switches expected mode; do
    [ -n "$(trim "$name")" ] || continue
    "$1" "$(trim "$name")" "$(trim "$switches")" "$(trim "$expected")" "$(trim "$mode")" || bad=1
  done <<<"$table"
  return "$bad"
}

story() {
  [ "$1" = "$wanted" ] || return 0
  build "$2" shortest
  (cd "$work" && run shortest && spin -t -p -g $2 settle.pml | grep -v 'proc  - ')
}

if [ "${1:-}" = story ]; then
  wanted=${2:?name of a variant}
  each story
  exit
fi
each one
