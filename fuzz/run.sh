#!/usr/bin/env bash
# Fuzzes every target for so many seconds, two at a time, from the corpora in the tree and the real inputs that the tests
# have: fuzz/run.sh [SECONDS [TARGET...]]. What is found beyond the corpora lies in target/fuzz; an input that breaks
# something is printed and kept there.
#
# The corpora are written by hand, but for that of `ingest`, which proto/tests/seeds.rs makes of the golden files. In
# `connections` the parts of ZAP's requests stand behind their lengths, and key files of a directory behind their names.
#
# It is what `cargo fuzz run` does, without the address sanitizer, which wants a nightly compiler and which code without
# `unsafe` has little use for. `cargo fuzz` works on this directory as well.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:-60}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(configuration connections control frame ingest kernel_text message spool)

out=$(realpath -m ../target/fuzz)
export CARGO_TARGET_DIR=$out/build
# Coverage for the fuzzer, as cargo-fuzz asks for it.
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares"
host=$(rustc -vV | sed -n 's/^host: //p')
# With --target the flags are for the programs, and not for what builds them.
cargo build --quiet --release --locked --target "$host"

real() {
    case $1 in
    configuration) echo ../deploy ;;
    frame | message) echo ../proto/tests/golden ;;
    spool) echo corpus/ingest ;;
    kernel_text) echo ../node-agent/tests/fixtures ;;
    esac
}

fuzz() {
    local target=$1 found=$out/corpus/$1 log=$out/$1.log seeds=() status=0
    mkdir -p "$found" "$out/artifacts/$target"
    for directory in "corpus/$target" $(real "$target"); do
        [ -d "$directory" ] && seeds+=("$directory")
    done
    # What is read first must be where new inputs may be written.
    "$CARGO_TARGET_DIR/$host/release/$target" "$found" "${seeds[@]}" -max_total_time="$seconds" -rss_limit_mb=1024 \
        -timeout=10 -max_len=16384 -artifact_prefix="$out/artifacts/$target/" >"$log" 2>&1 || status=$?
    if [ $status -eq 0 ]; then
        printf '%-14s %s\n' "$target" "$(grep -a '^Done' "$log")"
    else
        printf '%-14s FAILED; the whole log is %s\n' "$target" "$log"
        grep -a -A25 -e panicked -e ERROR "$log" | head -40
    fi
    return $status
}

failed=0
running=()
for target in "${targets[@]}"; do
    fuzz "$target" &
    running+=($!)
    if [ ${#running[@]} -eq 2 ]; then
        for pid in "${running[@]}"; do wait "$pid" || failed=1; done
        running=()
    fi
done
for pid in "${running[@]}"; do wait "$pid" || failed=1; done
exit $failed
