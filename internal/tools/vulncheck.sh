#!/bin/sh
# Runs govulncheck on packages, and tells "nothing was checked" from "nothing was found": vulncheck.sh PACKAGE…
# Exit codes: 0 nothing known is reached; 3 something is; 1 the database was not reached, or another failure.
set -eu

log=$(mktemp)
trap 'rm -f "$log"' EXIT
code=0
bin/govulncheck ${GOVULNDB:+-db "$GOVULNDB"} "$@" 2>"$log" || code=$?
cat "$log" >&2
if [ "$code" -ne 0 ] && grep -q -E 'fetching vulnerabilities|vuln\.go\.dev' "$log"; then
	echo "vulncheck: NOTHING WAS CHECKED: the vulnerability database ${GOVULNDB:-https://vuln.go.dev} cannot be read from here." >&2
	echo "vulncheck: run it where it can, or name a copy of it: GOVULNDB=file:///path make vulncheck" >&2
	exit 1
fi
exit "$code"
