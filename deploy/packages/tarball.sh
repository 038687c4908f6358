#!/usr/bin/env bash
# Makes the archive of this revision, with the layout of /usr and /etc: deploy/packages/tarball.sh PROGRAMS OUT.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/stage.sh"
name=polymeter-$version-$(uname -m)-linux
mv "$work/stage" "$work/$name"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -c "$name" | gzip -9n >"$out/$name.tar.gz"
cd "$out"
sha256sum "$name.tar.gz" >SHA256SUMS-tarball
ls "$out/$name.tar.gz"
