#!/usr/bin/env bash
# Builds a libzmq that takes less memory for each connection, for collectors of thousands of agents: deploy/libzmq/build.sh OUT [SOURCE].
# SOURCE is a directory with the source of libzmq 4.3. Without it, this is Debian's source package, whose signature apt checks. Needs
# cmake, g++, pkg-config and the header files of libsodium; without SOURCE also dpkg-dev.
set -euo pipefail
# The entries of a block of a queue, and the bytes of the buffers of a connection: docs/explanation/scaling.md.
block=4
buffer=512

[ $# = 1 ] || [ $# = 2 ] || { echo "usage: $0 OUT [SOURCE]" >&2; exit 2; }
mkdir -p "$1"
out=$(readlink -f "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }; }

if [ $# = 2 ]; then
    cp -r "$2" "$work/source"
else
    # The sources of packages have lists of their own, so that the configuration of the machine stays as it is.
    mkdir -p "$work/apt/parts" "$work/apt/lists/partial"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ ! -f "$file" ] || sed -n 's/^deb /deb-src /p' "$file" >>"$work/apt/parts/all.list"
    done
    for file in /etc/apt/sources.list.d/*.sources; do
        [ ! -f "$file" ] || sed 's/^Types:.*/Types: deb-src/' "$file" >"$work/apt/parts/${file##*/}"
    done
    options=(-qq -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$work/apt/parts" -o "Dir::State::lists=$work/apt/lists")
    # A repository without sources, for other packages, is no obstacle.
    apt-get "${options[@]}" update >"$work/log" 2>&1 || true
    cd "$work"
    quietly apt-get "${options[@]}" source --download-only zeromq3
    quietly dpkg-source -x "$work"/zeromq3_*.dsc "$work/source"
fi

# Replaces a constant, which must be in the file.
set_constant() {
    grep -qF "$2" "$work/source/src/$1" || { echo "src/$1 has no '$2': this script is for libzmq 4.3" >&2; exit 1; }
    sed -i "s/$2/$3/" "$work/source/src/$1"
}
set_constant config.hpp 'message_pipe_granularity = 256' "message_pipe_granularity = $block"
set_constant options.cpp ' in_batch_size (8192)' " in_batch_size ($buffer)"
set_constant options.cpp 'out_batch_size (8192)' "out_batch_size ($buffer)"
quietly cmake -S "$work/source" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DWITH_LIBSODIUM=ON -DENABLE_CURVE=ON \
    -DBUILD_TESTS=OFF -DBUILD_STATIC=OFF -DWITH_PERF_TOOL=OFF -DWITH_DOCS=OFF
quietly cmake --build "$work/build" --parallel "$(nproc)"
install -m 755 "$(readlink -f "$work/build/lib/libzmq.so.5")" "$out/libzmq.so.5"
nm -D --undefined-only "$out/libzmq.so.5" >"$work/symbols"
grep -q crypto_box "$work/symbols" || { echo "the library has no CURVE" >&2; exit 1; }
echo "$out/libzmq.so.5"
