#!/bin/sh
# Runs every fuzz target of the module for a while, one after the other: fuzz.sh [TIME]
set -eu

go=${GO:-go}
time=${1:-10s}
count=0

packages=$("$go" list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...)

for package in $packages; do
	# Two steps, so that a package that does not compile fails here.
	names=$("$go" test -list '^Fuzz' "$package")
	for target in $(echo "$names" | grep '^Fuzz'); do
		echo "== $package $target ($time)"
		"$go" test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package"
		count=$((count + 1))
	done
done

echo "$count fuzz targets ran"
[ "$count" -gt 0 ]
