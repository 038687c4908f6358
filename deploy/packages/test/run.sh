#!/usr/bin/env bash
# Installs, runs, upgrades, removes and purges the Debian packages in a new Debian tree, and executes the administrator's path on three
# machines: deploy/packages/test/run.sh PROGRAMS WORK. Needs root, mmdebstrap, and what deb.sh and path.sh need. The trees are made
# once.
set -euo pipefail
test=$(dirname "$(readlink -f "$0")")
programs=$(realpath "$1")
mkdir -p "$2"
work=$(realpath "$2")
release=$(. /etc/os-release && echo "$VERSION_CODENAME")

POLYMETER_PACKAGE_VERSION=0.0.1 "$test/../deb.sh" "$programs" "$work/first" >/dev/null
"$test/../deb.sh" "$programs" "$work/second" >/dev/null
[ -e "$work/base.tar" ] || {
    mmdebstrap --quiet --variant=minbase "$release" "$work/base.new.tar"
    mv "$work/base.new.tar" "$work/base.tar"
}
rm -rf --one-file-system "$work/tree"
mkdir "$work/tree"
tar -C "$work/tree" -xf "$work/base.tar" --exclude './dev/*'
cp -r "$work/first" "$work/second" "$test/inside.sh" "$work/tree/root/"
cp /etc/resolv.conf /etc/hosts "$work/tree/etc/"
# The packages' sources are those of this machine, which may use a proxy.
cp -r /etc/apt/apt.conf.d/. "$work/tree/etc/apt/apt.conf.d/" 2>/dev/null || true

echo "installing the archive for users"
"$test/../user-tarball.sh" "$programs" "$work/user" >/dev/null
"$test/user.sh" "$work"/user/polymeter-user-*.tar.gz "$work/tree"

echo "unpacking the RPM packages"
"$test/../rpm.sh" "$programs" "$work/rpm" >/dev/null
rm -rf "$work/rpm-tree"
mkdir "$work/rpm-tree"
# Debian's rpm refuses to install without this option.
rpm --force-debian --root "$work/rpm-tree" --install --nodeps --noscripts "$work"/rpm/polymeter*.rpm
for program in polymeter polymeter-agent polymeter-collector; do
    cmp "$programs/$program" "$work/rpm-tree/usr/bin/$program"
done
for file in include/polymeter/likwid/likwid-marker.h share/polymeter/regions/polymeter_regions.py; do
    [ -e "$work/rpm-tree/usr/$file" ] || { echo "polymeter lacks /usr/$file" >&2; exit 1; }
done
for package in agent collector; do
    rpm -qp --requires "$work"/rpm/polymeter-$package-*.rpm | grep -q '^libzmq.so' || { echo "polymeter-$package does not require libzmq" >&2; exit 1; }
    rpm -qp --configfiles "$work"/rpm/polymeter-$package-*.rpm | grep -q "^/etc/polymeter/$package.toml$"
done
rm -rf "$work/rpm-tree"

echo "installing into a directory"
DESTDIR=$work/destination PREFIX=/opt/polymeter SYSCONFDIR=/opt/etc "$test/../install.sh" "$programs"
grep -q '^ExecStart=/opt/polymeter/bin/polymeter-agent --config /opt/etc/polymeter/agent.toml$' \
    "$work/destination/opt/polymeter/lib/systemd/system/polymeter-agent.service" || { echo "make install ignores PREFIX" >&2; exit 1; }
[ -z "$(find "$work/destination" -mindepth 1 -maxdepth 1 ! -name opt)" ] || { echo "make install leaves PREFIX" >&2; exit 1; }
rm -rf "$work/destination"

# Mounts and processes of the test end with it.
status=0
unshare --mount --pid --fork --kill-child --propagation private sh -c "
    cd '$work/tree'
    mount -t proc proc proc
    mount --rbind /sys sys
    mount --rbind /dev dev
    mount -t tmpfs tmpfs run
    exec chroot . /bin/bash /root/inside.sh" || status=$?
for root in $(awk '$3 == "cgroup2" || $3 == "cgroup" { print $2 }' /proc/mounts); do
    rmdir "$root"/polymeter_package* 2>/dev/null || true
done
rm -rf --one-file-system "$work/tree"
[ $status = 0 ] || exit $status

[ -e /sys/fs/cgroup/memory/tasks ] || { echo "the administrator's path requires cgroup version 1: not executed"; exit 0; }
exec "$test/path.sh" "$test/../../../docs/how-to/install.md" "$work/second" "$work"
