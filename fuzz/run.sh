#!/usr/bin/env bash
# Fuzzes targets, two at a time, and exits with 1 if one of them fails.
# usage: fuzz/run.sh [SECONDS [TARGET...]]
# With 0 seconds the targets are only built.
#
# The seeds are the corpora in this directory, some of which are links to files of the project. New inputs, logs, and
# inputs that cause a failure are written to target/fuzz; the failure is printed. The bodies of the targets are in src/,
# and `cargo test -p polymeter-fuzz` runs them on the corpora without instrumentation.
#
# The corpora are written by hand, except `ingest`, which proto/tests/golden/seeds.rs generates from the golden files.
# In `connections`, each part of a ZAP request follows its length, and each key file of a directory follows its name. In
# `sources`, the first byte selects the parser (node-agent/src/sources/fuzzing.rs).
#
# The script does the same as `cargo fuzz run`, which works in instrumented/ as well, but without the address sanitizer:
# that requires a nightly compiler and finds little in code without `unsafe`.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:-60}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=($(basename -s .rs instrumented/src/bin/*.rs))

out=$(realpath -m ../target/fuzz)
export CARGO_TARGET_DIR=$out/build
# The coverage instrumentation of cargo-fuzz.
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares"
host=$(rustc -vV | sed -n 's/^host: //p')
# With --target, the flags do not apply to build scripts and procedural macros.
cargo build --quiet --release --locked --manifest-path instrumented/Cargo.toml --target "$host"
[ "$seconds" != 0 ] || exit 0

fuzz() {
    local target=$1 found=$out/corpus/$1 log=$out/$1.log status=0
    mkdir -p "$found" "$out/artifacts/$target"
    # libFuzzer writes new inputs to the first directory.
    "$CARGO_TARGET_DIR/$host/release/$target" "$found" "corpus/$target" -max_total_time="$seconds" -rss_limit_mb=1024 \
        -timeout=10 -max_len=16384 -artifact_prefix="$out/artifacts/$target/" >"$log" 2>&1 || status=$?
    if [ $status -eq 0 ]; then
        printf '%-14s %s\n' "$target" "$(grep -a '^Done' "$log")"
    else
        printf '%-14s FAILED; log: %s\n' "$target" "$log"
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
