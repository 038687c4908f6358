#!/bin/sh
# A job that uses CPU time and memory, records the values of its cgroups at its end, and ends with the status that it is given.
# OAR_JOB_ID comes from OAR.
date +%s%N >"/out/began.$OAR_JOB_ID"
dd if=/dev/zero of=/dev/null bs=40M count=3 2>/dev/null
i=0
while [ $i -lt 300000 ]; do i=$((i + 1)); done
of() { sed -n "s/^[0-9]*:\([^:]*,\)\?$1\(,[^:]*\)\?:\(.*\)/\/sys\/fs\/cgroup\/$1\3/p" /proc/self/cgroup; }
cp "$(of cpuacct)/cpuacct.usage" "/out/usage.$OAR_JOB_ID"
cp "$(of memory)/memory.max_usage_in_bytes" "/out/peak.$OAR_JOB_ID"
exit "$1"
