# Sourced by the scripts that make packages, with the arguments PROGRAMS OUT: PROGRAMS is the directory of the release build.
# Sets here, programs, out, version, date and work, a directory that is removed at the end, and installs into $work/stage.
here=$(dirname "$(readlink -f "$0")")
programs=$(realpath "$1")
out=$(realpath -m "$2")
version=$("$programs/polymeter" --version --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["version"])')
version=${POLYMETER_PACKAGE_VERSION:-$version}
# The date of the revision makes its packages equal wherever they are built.
date=$(git -C "$here" log -1 --format=%cD 2>/dev/null || date -R)
SOURCE_DATE_EPOCH=$(date -d "$date" +%s)
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
python3 "$here/inventory.py" "$programs" >"$work/log"
DESTDIR=$work/stage PREFIX=/usr SYSCONFDIR=/etc "$here/install.sh" "$programs"

# quietly COMMAND: runs a command, and shows its output if it fails.
quietly() {
    "$@" >>"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
}
