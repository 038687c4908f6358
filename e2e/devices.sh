#!/usr/bin/env bash
# Runs a command on this machine as if it had the devices of others, in a mount namespace of its own: sensors,
# fabrics and GPUs of the fixtures, energy counters (powercap, and a PMU `power`), a baseboard management
# controller, disks, swap areas, a second NUMA node and the library of NVIDIA's driver. Tests must give the same
# results as without them. Requires root and a C compiler.
# usage: e2e/devices.sh COMMAND [ARGUMENT...]
set -euo pipefail
here=$(realpath "$(dirname "$0")")
if [ "${POLYMETER_DEVICES:-}" != laid-out ]; then
    POLYMETER_DEVICES=laid-out exec unshare --mount "$here/devices.sh" "$@"
fi

# Writes a file and the directories above it.
lay() { mkdir -p "$(dirname "$1")" && printf '%s\n' "$2" >"$1"; }
# Replaces a directory by a copy that can be changed. Attributes of sysfs are left out: to read one may create a
# device.
replace() {
    local copy
    copy=$(mktemp -d)
    mount -t tmpfs -o mode=755 tmpfs "$copy"
    (cd "$1" && find . -xdev ! -type f -print0 | tar --no-recursion --null -T - -c) | tar -x -C "$copy"
    mount --move "$copy" "$1"
    rmdir "$copy"
}

# As systemd mounts it.
mount -t tmpfs -o mode=700 tmpfs /sys/kernel/debug

replace /sys/class
for class in cxi drm hwmon infiniband thermal powercap; do rm -rf /sys/class/$class; done
cp -a "$here/../node-agent/tests/fixtures/sysfs/sys/class/"{cxi,drm,hwmon,infiniband,thermal} /sys/class/
zones=/sys/class/powercap/intel-rapl
lay $zones:0/name package-0
lay $zones:0:0/name dram
lay $zones:1/name package-1
for zone in $zones:0 $zones:0:0 $zones:1; do
    lay $zone/max_energy_range_uj 262143328850
    lay $zone/energy_uj 123456789
    chmod 400 $zone/energy_uj
done

# Its events are those of the software PMU, so that they can be opened.
replace /sys/bus/event_source/devices
power=/sys/bus/event_source/devices/power
rm -rf $power
lay $power/type 1
lay $power/cpumask 0
event=0
for name in cores pkg ram gpu psys; do
    event=$((event + 1))
    lay $power/events/energy-$name event=0x0$event
    lay $power/events/energy-$name.unit Joules
    lay $power/events/energy-$name.scale 2.3283064365386962890625e-10
done

numa=$(mktemp -d)
cp -a /sys/devices/system/node/node0 "$numa/" 2>/dev/null || true
mount -t tmpfs tmpfs /sys/devices/system/node
mkdir /sys/devices/system/node/node1
cp -a "$numa/node0" /sys/devices/system/node/
for file in meminfo numastat; do
    sed 's/^Node 0/Node 1/' "$numa/node0/$file" >/sys/devices/system/node/node1/$file
done
rm -r "$numa"

# Prints a file of /proc with more lines, and shows that in its place.
extend() {
    local file
    file=$(mktemp)
    { cat "$1" && printf '%s\n' "${@:2}"; } >"$file"
    chmod 644 "$file"
    mount --bind "$file" "$1"
}
io="1 0 8 1 2 0 16 2 0 3 3 0 0 0 0 0 0"
extend /proc/diskstats " 259 0 nvme0n1 $io" " 253 0 dm-0 $io" " 9 127 md127 $io"
extend /proc/swaps "/dev/nvme0n1p3 partition 8388604 0 -2"

replace /dev
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mkdir -p /dev/dri
for node in ipmi0 nvidiactl dri/renderD128; do rm -f /dev/$node && mknod -m 600 /dev/$node c 1 3; done

library=$(mktemp -d)
mount -t tmpfs tmpfs "$library"
mkdir "$library"/{upper,work}
mount -t overlay -o lowerdir=/usr/local,upperdir="$library/upper",workdir="$library/work" overlay /usr/local
mkdir -p /usr/local/nvidia/lib64
cc -shared -fPIC -o /usr/local/nvidia/lib64/libnvidia-ml.so.1 "$here/../node-agent/tests/nvml/stand_in.c"
printf 'gpus 1\n0.uuid GPU-a\n0.power 250000\n0.energy 123456789\n0.temperature 64\n0.utilization 97\n' \
    >/usr/local/nvidia/lib64/nvml.txt
exec "$@"
