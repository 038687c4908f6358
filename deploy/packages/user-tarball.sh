#!/usr/bin/env bash
# Makes the archive that a user unpacks in ~/.local without root: deploy/packages/user-tarball.sh PROGRAMS OUT. It has the command, which
# contains all that `polymeter run` needs, its manual and completions, and the libraries beside the C library. Needs patchelf.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/stage.sh"
name=polymeter-user-$version-$(uname -m)-linux
tree=$work/$name
mkdir -p "$tree/lib/polymeter" "$tree/share/man"
install -D -m 755 "$programs/polymeter" "$tree/bin/polymeter"
cp -r "$work/stage/usr/share/man/man1" "$tree/share/man/"
find "$tree/share/man" -name 'polymeter-agent*' -delete -o -name 'polymeter-collector*' -delete
cp -r "$work/stage/usr/share/bash-completion" "$tree/share/"
# The library for instrumented programs, and what they are built with.
cp -P "$work"/stage/usr/lib/libpolymeter_regions.so* "$tree/lib/"
cp -r "$work/stage/usr/include" "$tree/"
mkdir -p "$tree/share/polymeter"
cp -r "$work/stage/usr/share/polymeter/regions" "$tree/share/polymeter/"
[ ! -d "$work/stage/usr/share/doc" ] || cp -r "$work/stage/usr/share/doc" "$tree/share/"
# The C library and its parts belong to the machine. The search path of a library counts for those that it needs, too.
ldd "$programs/polymeter" | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | while read -r library path; do
    case $library in
        libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | libresolv.so.*) ;;
        *)
            install -m 644 "$path" "$tree/lib/polymeter/$library"
            # Its licence, where the machine has it as Debian does.
            package=$(dpkg -S "$(readlink -f "$path")" 2>/dev/null | head -n 1 | cut -d: -f1) || true
            [ ! -e "/usr/share/doc/$package/copyright" ] ||
                install -D -m 644 "/usr/share/doc/$package/copyright" "$tree/share/doc/polymeter/$package.copyright"
            ;;
    esac
done
quietly patchelf --force-rpath --set-rpath '$ORIGIN/../lib/polymeter' "$tree/bin/polymeter"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -c "$name" | gzip -9n >"$out/$name.tar.gz"
ls "$out/$name.tar.gz"
