#!/bin/sh
# A job that computes, allocates memory, writes and reads for some seconds, and marks its phases.
# usage: POLYMETER=PROGRAM POLYMETER_SOCKET=SOCKET JOB=ID workload.sh SCRATCH-FILE CGROUP.PROCS...
mark() { "$POLYMETER" mark --socket "$POLYMETER_SOCKET" --job "$JOB" "$@" >/dev/null; }
scratch=$1
shift
for entrance in "$@"; do echo $$ >"$entrance"; done
for round in 1 2 3 4 5; do
    mark --begin compute
    i=0
    while [ $i -lt 150000 ]; do i=$((i + 1)); done
    # `tail` buffers its input: the memory is allocated, and freed again.
    head -c $((round * 40000000)) /dev/zero | tail -c $((round * 40000000)) | wc -c >/dev/null
    mark --end compute
    mark --begin write
    dd if=/dev/zero of="$scratch" bs=1M count=$((round * 8)) conv=fsync 2>/dev/null
    cat "$scratch" >/dev/null
    mark --end write
    sleep 0.3
done
