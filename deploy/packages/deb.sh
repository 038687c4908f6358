#!/usr/bin/env bash
# Builds the Debian packages of this revision: deploy/packages/deb.sh PROGRAMS OUT. Needs dpkg-dev and debhelper.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/stage.sh"
mkdir "$work/source"
cp -r "$here/debian" "$work/source/"
cat >"$work/source/debian/changelog" <<CHANGELOG
polymeter ($version) unstable; urgency=medium

  * See CHANGELOG.md on the project's page.

 -- Polymeter developers <developers@polymeter.org>  $date
CHANGELOG
cd "$work/source"
quietly env STAGE="$work/stage" dpkg-buildpackage -b -us -uc
rm -f "$out"/polymeter*.deb
mv "$work"/polymeter*.deb "$out/"
cd "$out"
sha256sum polymeter*.deb >SHA256SUMS-deb
ls "$out"/polymeter*.deb
