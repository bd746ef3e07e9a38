#!/usr/bin/env bash
# Runs the crash matrix and shows a line for each of its cells: matrix.sh. The whole log goes to bin/matrix.log.
set -euo pipefail

go=${GO:-go}
log=bin/matrix.log
mkdir -p bin

code=0
"$go" test -count=1 -v -timeout 20m -run '^Test(Crash|LocalCrash|ChainCrash|EnqueueCrash|ImportCrash)' ./internal/cases >"$log" 2>&1 || code=$?

# What each cell came to, and then the results; not what the workers wrote.
{ grep -o 'cell: .*' "$log" || true; } | sed 's/^cell: //' | sort
{ grep -E '^--- |^ *--- FAIL|^ *--- PASS: Test(Chain|Enqueue|Import)|_test\.go:[0-9]+: |^(ok|FAIL|panic)' "$log" || true; } | grep -v 'cell: '
echo "$(grep -c 'cell: ' "$log" || true) cells; the whole log is $log"
exit "$code"
