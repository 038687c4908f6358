#!/usr/bin/env bash
# Runs a test in a virtual machine with cgroup version 2 only and a Debian kernel:
# e2e/guest/run.sh TEST DIRECTORY_WITH_PROGRAMS WORK_DIRECTORY. TEST is a directory beside this script: test.sh runs in the
# guest, compare.py reads its results afterwards, and root.sh, if there is one, adds programs to the guest with `add`, and may start
# programs on this machine with `beside`, which the guest reaches at 10.0.2.2 and which end with this script. It needs
# qemu-system-x86, busybox-static (also for cpio) and e2fsprogs, downloads Debian's cloud kernel once, and installs nothing on
# this machine. The guest's CPU is emulated, since an existing /dev/kvm may not work; GUEST_ACCEL=kvm uses it.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
test=$here/$1
programs=$(realpath "$2")
work=$(realpath -m "$3")
mkdir -p "$work/$1"
cd "$work"

# The kernel is unpacked, not installed. The meta package depends on the newest version.
if [ ! -e kernel ]; then
    package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -1)
    [ -n "$package" ] || { echo "SKIPPED: no linux-image-cloud-amd64 among this machine's packages"; exit 77; }
    apt-get download -qq "$package"
    mkdir -p unpacked
    dpkg-deb -x "$package"_*.deb unpacked
    rm -f "$package"_*.deb
    find unpacked/lib/modules -name '*.ko.xz' -exec xz -d {} +
    busybox depmod -b unpacked "$(ls unpacked/lib/modules)"
    ln -sf unpacked/boot/vmlinuz-* kernel
fi
kernel=$work/kernel
version=$(ls unpacked/lib/modules)
modules=$work/unpacked/lib/modules/$version
cd "$1"

rm -rf root out
mkdir -p root/{bin,sbin,usr/bin,usr/sbin,proc,sys,dev,run,tmp,mnt,out,root,etc,lib64} "root/lib/modules/$version"
cp "$(command -v busybox)" root/bin/busybox
for applet in $(busybox --list); do [ "$applet" = busybox ] || ln -sf busybox "root/bin/$applet"; done
echo 'root:x:0:0:root:/root:/bin/sh' >root/etc/passwd
echo 'root:x:0:' >root/etc/group
for module in virtio_pci virtio_blk virtio_console virtio_net ext4; do
    for file in $(sed -n "s|^\([^:]*/$module\.ko\): *\(.*\)|\1 \2|p" "$modules/modules.dep"); do
        mkdir -p "root/lib/modules/$version/$(dirname "$file")"
        cp "$modules/$file" "root/lib/modules/$version/$file"
    done
done
busybox depmod -b root "$version"
cp "$here/init" root/init
cp "$test/test.sh" root/test.sh
chmod 755 root/init

# Copies a program or a library into the guest, with the shared libraries that it is linked with: add FILE [PATH_IN_GUEST].
add() {
    local file=$1 path=${2:-$1} library
    mkdir -p "root/${path%/*}"
    # An applet of busybox is a link.
    rm -f "root/$path"
    cp -L "$file" "root/$path"
    for library in $(ldd "$file" | sed -nE 's/.*=> (\/[^ ]+) \(0x.*/\1/p; s/^[[:space:]]*(\/[^ ]+) \(0x.*/\1/p'); do
        [ -e "root/$library" ] || { mkdir -p "root/${library%/*}" && cp -L "$library" "root/$library"; }
    done
}
for program in polymeter polymeter-agent polymeter-collector; do
    add "$programs/$program" "/usr/bin/$program"
done
beside=()
beside() {
    "$@" >beside.log 2>&1 &
    beside+=($!)
}
trap '[ ${#beside[@]} = 0 ] || kill "${beside[@]}" 2>/dev/null || true' EXIT
# shellcheck source=/dev/null
[ ! -e "$test/root.sh" ] || . "$test/root.sh"
(cd root && find . | busybox cpio -o -H newc -R 0:0 2>/dev/null) | gzip -1 >initrd
truncate -s 128M disk
mkfs.ext4 -q -F disk

rm -f in
mkfifo in
# With an emulated CPU, the guest's kernel sometimes stops with a soft lockup of both CPUs, in whatever runs: it ends then, and is
# started again.
for attempt in 1 2 3; do
    : >status
    : >files
    # Both ends of the input stay open: at end of file QEMU would consider the port closed.
    timeout -k 5 "${GUEST_SECONDS:-900}" qemu-system-x86_64 -M q35 -accel "${GUEST_ACCEL:-tcg,thread=multi}" -cpu max -smp 2 -m 1024 \
        -display none -monitor none -nic user,model=virtio-net-pci -no-reboot -serial file:console \
        -drive file=disk,format=raw,if=virtio,cache=unsafe -device virtio-serial-pci \
        -chardev stdio,id=out,signal=off -device virtserialport,chardev=out,name=out \
        -chardev file,id=status,path=status -device virtserialport,chardev=status,name=status \
        -chardev file,id=files,path=files -device virtserialport,chardev=files,name=files \
        -kernel "$kernel" -initrd initrd -append "console=ttyS0 quiet panic=-1 softlockup_panic=1 psi=1" 0<>in || true
    rc=$(tr -dc 0-9 <status)
    [ -z "$rc" ] && [ "$attempt" -lt 3 ] && grep -q 'soft lockup' console || break
    echo "the guest's kernel stopped with a soft lockup; starting it again"
done
[ -n "$rc" ] || { echo "the guest died without a word; its console:"; tail -c 4000 console; exit 1; }
mkdir -p out
tar -x -C out --no-same-owner -f files
[ "$rc" = 0 ] || exit "$rc"
echo "guest: Linux $version"
python3 "$test/compare.py" out
