#!/usr/bin/env bash
# Builds the RPM packages of this revision: deploy/packages/rpm.sh PROGRAMS OUT. Needs rpmbuild.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/stage.sh"
quietly rpmbuild -bb "$here/rpm/polymeter.spec" --define "_topdir $work/rpm" --define "stage $work/stage" \
    --define "package_version ${version//-/\~}" --define 'use_source_date_epoch_as_buildtime 1' \
    --define 'clamp_mtime_to_source_date_epoch 1' --define '_buildhost localhost'
rm -f "$out"/polymeter*.rpm
mv "$work"/rpm/RPMS/*/polymeter*.rpm "$out/"
cd "$out"
sha256sum polymeter*.rpm >SHA256SUMS-rpm
ls "$out"/polymeter*.rpm
