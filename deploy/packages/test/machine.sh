#!/bin/sh
# Starts a Debian tree as a machine of its own: machine.sh TREE HOST CGROUP. systemd is its first process; it has its own processes,
# network, mounts and cgroups: those below CGROUP in each hierarchy of this machine. TREE.pid gets systemd's process id, and systemd
# waits until there is a link `eth0`.
set -eu
tree=$1
host=$2
cgroup=$3
case ${4:-} in
'')
    for root in $(awk '$3 == "cgroup" || $3 == "cgroup2" { print $2 }' /proc/mounts); do
        echo $$ >"$root/$cgroup/cgroup.procs"
    done
    exec unshare --mount --pid --net --ipc --uts --cgroup --fork --kill-child --propagation private "$0" "$@" within
    ;;
esac
# This shell is the first process of the machine. /proc still has the processes of this one.
read -r pid _ </proc/self/stat
echo "$pid" >"$tree.pid"
hierarchies=$(awk '$3 == "cgroup" || $3 == "cgroup2" { sub(".*/", "", $2); sub("^rw,relatime,?", "", $4); sub("^(nosuid|nodev|noexec|,)*", "", $4); print $3 ":" $2 ":" $4 }' /proc/mounts)
mount --bind "$tree" "$tree"
cd "$tree"
hostname "$host"
mount -t proc proc proc
# What systemd sets and loads at its start would be that of this machine.
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
until [ -e sys/class/net/eth0 ]; do sleep 0.1; done
mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
for hierarchy in $hierarchies; do
    type=${hierarchy%%:*}
    options=${hierarchy#*:*:}
    directory=sys/fs/cgroup/$(echo "$hierarchy" | cut -d: -f2)
    # A hierarchy may be mounted twice.
    [ ! -e "$directory" ] || continue
    mkdir "$directory"
    case $type:$options in
    cgroup2:*) mount -t cgroup2 cgroup2 "$directory" ;;
    cgroup:*name=*) mount -t cgroup -o "none,name=${options##*name=}" cgroup "$directory" ;;
    *) mount -t cgroup -o "$(basename "$directory")" cgroup "$directory" ;;
    esac
done
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do
    touch dev/$device
    mount --bind /dev/$device dev/$device
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mkdir -p old
pivot_root . old
umount -l /old
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 /lib/systemd/systemd
