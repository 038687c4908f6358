#!/bin/sh
# Installs the named Debian packages that are missing, and prints their names. Does nothing if all are installed.
set -eu
missing=""
for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null; then
    echo "missing:$missing. This is no Debian; install what corresponds to them, and try again." >&2
    exit 1
fi
sudo=""
[ "$(id -u)" = 0 ] || sudo=sudo
echo "installing:$missing"
$sudo apt-get update -qq
# shellcheck disable=SC2086 # the list is words
$sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
