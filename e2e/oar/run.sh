#!/usr/bin/env bash
# Runs jobs under a real OAR 2.5 with its database, server, node and commands: e2e/oar/run.sh PROGRAMS WORK. Needs root, cgroup
# version 1, and WORK/base.tar of tree.sh. All of it runs in a new Debian tree, in namespaces of its own: OAR kills the processes of a job's user
# and deletes the user's files in /tmp. Only the cgroups are those of this machine; they are removed at the end.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
programs=$(realpath "$1")
mkdir -p "$2"
work=$(realpath "$2")
controllers="cpuset cpu cpuacct devices freezer memory"

for controller in $controllers; do
    [ -e "/sys/fs/cgroup/$controller/tasks" ] || { echo "there is no /sys/fs/cgroup/$controller of version 1" >&2; exit 1; }
    [ ! -e "/sys/fs/cgroup/$controller/oar" ] || { echo "/sys/fs/cgroup/$controller/oar exists already" >&2; exit 1; }
done
rm -rf --one-file-system "$work/tree" "$work/out"
mkdir -p "$work/tree"
tar -C "$work/tree" -xf "$work/base.tar" --exclude './dev/*'
mkdir -p "$work/tree"/{out,etc/polymeter,etc/oar/polymeter}
for program in polymeter polymeter-agent polymeter-collector; do
    strip -o "$work/tree/usr/bin/$program" "$programs/$program"
done
cp "$here"/../../deploy/oar/* "$work/tree/etc/oar/polymeter/"
cp "$here"/inside.sh "$here"/job.sh "$work/tree/"

status=0
timeout -k 10 "${OAR_SECONDS:-300}" unshare --mount --pid --net --ipc --uts --fork --kill-child --propagation private sh -ec "
    cd '$work/tree'
    hostname node
    mount -t proc proc proc
    mount --rbind /sys sys
    mount -t tmpfs tmpfs run
    mount -t tmpfs -o mode=755 tmpfs dev
    # OAR makes links in /dev, so it is not that of this machine.
    for device in null zero full random urandom tty; do
        touch dev/\$device
        mount --bind /dev/\$device dev/\$device
    done
    mkdir dev/pts dev/shm
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
    ln -s pts/ptmx dev/ptmx
    ln -s /proc/self/fd dev/fd
    mount -t tmpfs -o mode=1777 tmpfs dev/shm
    exec chroot . /bin/bash /inside.sh" </dev/null || status=$?
mkdir -p "$work/out"
cp -r "$work/tree/out/." "$work/out/"
for controller in $controllers; do
    # The directories of jobs first. Cgroups without processes can be removed.
    find "/sys/fs/cgroup/$controller/oar" -depth -type d -exec rmdir {} + 2>/dev/null || true
done
rm -rf --one-file-system "$work/tree"
[ $status = 0 ] || exit $status
python3 "$here/compare.py" "$work/out"
