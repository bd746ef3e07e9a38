#!/bin/sh
# Makes sure that PostgreSQL's server binaries are on this machine, and installs the distribution's package
# where they are not. Asks nothing. Exit 0: they are there. Exit 1: they are not, and the text says what to do.
#
#   install-postgres.sh           install where missing
#   install-postgres.sh --find    print the folder of the binaries, install nothing
#
# Nothing is configured and no server is started: Settle runs its own on a socket or a free port. Where the
# distribution starts a cluster of its own (Debian does, on 5432), Settle does not touch it.
set -eu

say() { echo "postgres: $*" >&2; }

die() {
	say "$*"
	exit 1
}

# has DIR: both programs that Settle starts are in DIR.
has() { [ -n "$1" ] && [ -x "$1/initdb" ] && [ -x "$1/postgres" ]; }

# folders prints where the binaries may be, the most deliberate choice first.
folders() {
	# Links are followed: initdb looks for what belongs to it beside the real binary.
	command -v initdb >/dev/null 2>&1 && dirname "$(readlink -f "$(command -v initdb)")"
	command -v pg_config >/dev/null 2>&1 && pg_config --bindir
	# Newest version first. A pattern that matches nothing stays as it is, and has() refuses it.
	for pattern in \
		'/usr/lib/postgresql/*/bin' \
		'/usr/pgsql-*/bin' \
		'/opt/homebrew/opt/postgresql*/bin' \
		'/usr/local/opt/postgresql*/bin' \
		'/home/linuxbrew/.linuxbrew/opt/postgresql*/bin'; do
		# shellcheck disable=SC2086 # the pattern is there to be expanded
		printf '%s\n' $pattern | sort -rV
	done
}

# find_binaries prints the first folder that has them.
find_binaries() {
	folders | while read -r dir; do
		if has "$dir"; then
			echo "$dir"
			break
		fi
	done
}

# as_root runs a command as root: as it is, or through sudo, which may ask for a password only on a terminal.
as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif ! command -v sudo >/dev/null 2>&1; then
		die "this needs root, and there is no sudo; run $0 once as root"
	elif [ -t 0 ]; then
		sudo "$@"
	else
		sudo -n "$@"
	fi
}

# The lock time-out waits for an unattended upgrade instead of failing beside it.
apt() {
	as_root env DEBIAN_FRONTEND=noninteractive \
		apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" >&2
}

install_package() {
	if command -v apt-get >/dev/null 2>&1; then
		say "no server binaries found; installing the package postgresql with apt-get"
		apt update || say "apt-get update failed; going on with the package lists at hand"
		apt install --no-install-recommends postgresql
	elif command -v dnf >/dev/null 2>&1; then
		say "no server binaries found; installing the package postgresql-server with dnf"
		as_root dnf install -y postgresql-server >&2
	elif command -v brew >/dev/null 2>&1; then
		say "no server binaries found; installing postgresql@17 with brew"
		brew install postgresql@17 >&2
	else
		die "no server binaries found, and no apt-get, dnf or brew to install them with." \
			"Install PostgreSQL 15 or newer so that initdb and postgres are in PATH," \
			"or set DATABASE_URL for the tests."
	fi
}

dir=$(find_binaries)
if [ "${1:-}" = --find ]; then
	[ -n "$dir" ] || die "no server binaries found"
	echo "$dir"
	exit 0
fi
if [ -z "$dir" ]; then
	install_package || die "the installation failed; see the lines above"
	dir=$(find_binaries)
	[ -n "$dir" ] || die "installed, but initdb and postgres are in none of the folders that Settle looks in;" \
		"put theirs into PATH"
	say "using $dir"
fi
