#!/usr/bin/env bash
# Runs test.sh in a virtual machine with cgroup version 2 only and a Debian kernel:
# e2e/guest/run.sh DIRECTORY_WITH_PROGRAMS WORK_DIRECTORY. It needs qemu-system-x86, busybox-static (also for cpio) and
# e2fsprogs, downloads Debian's cloud kernel once, and installs nothing on this machine. The guest's CPU is emulated,
# since an existing /dev/kvm may not work; GUEST_ACCEL=kvm uses it.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
programs=$(realpath "$1")
work=$(realpath -m "$2")
mkdir -p "$work"
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
version=$(ls unpacked/lib/modules)

rm -rf root out
mkdir -p root/{bin,usr/bin,proc,sys,dev,run,tmp,mnt,out,root,etc,lib64} "root/lib/modules/$version"
cp "$(command -v busybox)" root/bin/busybox
for applet in $(busybox --list); do [ "$applet" = busybox ] || ln -sf busybox "root/bin/$applet"; done
echo 'root:x:0:0:root:/root:/bin/sh' >root/etc/passwd
echo 'root:x:0:' >root/etc/group
modules=unpacked/lib/modules/$version
for module in virtio_pci virtio_blk virtio_console ext4; do
    for file in $(sed -n "s|^\([^:]*/$module\.ko\): *\(.*\)|\1 \2|p" "$modules/modules.dep"); do
        mkdir -p "root/lib/modules/$version/$(dirname "$file")"
        cp "$modules/$file" "root/lib/modules/$version/$file"
    done
done
busybox depmod -b root "$version"
cp "$here/init" root/init
cp "$here/test.sh" root/test.sh
chmod 755 root/init
# The programs, with the shared libraries that they are linked with.
for program in polymeter polymeter-agent polymeter-collector; do
    cp "$programs/$program" root/usr/bin/
    for library in $(ldd "$programs/$program" | sed -nE 's/.*=> (\/[^ ]+) \(0x.*/\1/p; s/^[[:space:]]*(\/[^ ]+) \(0x.*/\1/p'); do
        mkdir -p "root/$(dirname "$library")"
        cp -L "$library" "root/$library"
    done
done
(cd root && find . | busybox cpio -o -H newc -R 0:0 2>/dev/null) | gzip -1 >initrd
truncate -s 128M disk
mkfs.ext4 -q -F disk

rm -f in
mkfifo in
: >status
: >files
# Both ends of the input stay open: at end of file QEMU would consider the port closed.
timeout -k 5 "${GUEST_SECONDS:-200}" qemu-system-x86_64 -M q35 -accel "${GUEST_ACCEL:-tcg,thread=multi}" -cpu max -smp 2 -m 1024 \
    -display none -monitor none -nic none -no-reboot -serial file:console \
    -drive file=disk,format=raw,if=virtio,cache=unsafe -device virtio-serial-pci \
    -chardev stdio,id=out,signal=off -device virtserialport,chardev=out,name=out \
    -chardev file,id=status,path=status -device virtserialport,chardev=status,name=status \
    -chardev file,id=files,path=files -device virtserialport,chardev=files,name=files \
    -kernel kernel -initrd initrd -append "console=ttyS0 quiet panic=-1 psi=1" 0<>in || true
rc=$(tr -dc 0-9 <status)
[ -n "$rc" ] || { echo "the guest died without a word; its console:"; tail -c 4000 console; exit 1; }
mkdir -p out
tar -x -C out --no-same-owner -f files
[ "$rc" = 0 ] || exit "$rc"
echo "guest: Linux $version"
python3 "$here/compare.py" out
