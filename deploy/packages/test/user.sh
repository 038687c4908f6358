#!/usr/bin/env bash
# Installs the archive for users in a Debian tree that has no libzmq, by the lines of docs/how-to/install.md, as a user without rights, and
# measures a program: deploy/packages/test/user.sh ARCHIVE TREE. Needs root.
set -euo pipefail
test=$(dirname "$(readlink -f "$0")")
archive=$(realpath "$1")
tree=$(realpath "$2")
lines=$(sed -n '/<!-- executed as an ordinary user -->/,/^```$/p' "$test/../../../docs/how-to/install.md" | sed '1,/^```sh$/d;/^```$/d')
[ "$(printf '%s\n' "$lines" | wc -l)" = 2 ] || { echo "install.md has not two lines for users" >&2; exit 1; }
! find "$tree/usr/lib" "$tree/lib/" -name 'libzmq*' | grep -q . || { echo "the tree has libzmq" >&2; exit 1; }
install -d -o 64005 -g 64005 "$tree/home/ada"
install -m 644 "$archive" "$tree/home/ada/"
trap 'rm -rf "$tree/home/ada"' EXIT
# The mounts end with the command.
unshare --mount --propagation private sh -c 'mount -t proc proc "$0/proc" && mount --rbind /sys "$0/sys" && mount --rbind /dev "$0/dev" &&
    exec chroot --userspec=64005:64005 "$@"' "$tree" "$tree" /usr/bin/env -i HOME=/home/ada PATH=/usr/bin:/bin /bin/sh -euc "
    cd
    $lines" >/dev/null
