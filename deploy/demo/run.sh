#!/bin/sh
# Demonstration: runs a collector, an agent and a workload in a cgroup of its own, with metrics at 1 ms, 100 ms and 1 s side by
# side, announces the job as the prolog of a scheduler does, changes a period while the job runs, and prints the report.
# usage: run.sh DIRECTORY-OF-BINARIES DIRECTORY-FOR-DATA
set -eu
bin=$(realpath "$1")
mkdir -p "$2"
data=$(realpath "$2")
here=$(dirname "$(realpath "$0")")
job=demo$$
store="sqlite:$data/demo.db"
rm -f "$data"/demo.db* "$data/demo.html"
collector="" agent="" workload=""

cgroups() { # prints the mount points of the hierarchies for the job's cgroup: version 2, and those of version 1 with metrics
    awk '$3 == "cgroup2" { print $2 }
         $3 == "cgroup" && $4 ~ /(^|,)(memory|cpuacct|pids|blkio)(,|$)/ { print $2 }' /proc/mounts
}

clean_up() {
    for pid in $workload $agent $collector; do kill "$pid" 2>/dev/null || true; done
    for root in $(cgroups); do
        group=$root/polymeter_$job
        [ -d "$group" ] || continue
        while read -r pid; do kill -9 "$pid" 2>/dev/null || true; done <"$group/cgroup.procs"
        for _ in 1 2 3 4 5 6 7 8 9 10; do rmdir "$group" 2>/dev/null && break || sleep 0.05; done
    done
    give_back
}

give_back() { # gives the data to the user of sudo, since a store is readable by its owner only
    [ -z "${SUDO_UID:-}" ] || chown -R "$SUDO_UID:${SUDO_GID:-$SUDO_UID}" "$data"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

wait_for() { # DESCRIPTION COMMAND...: repeats the command until it succeeds, for at most 10 s
    what=$1
    shift
    for _ in $(seq 100); do "$@" >/dev/null 2>&1 && return 0 || sleep 0.1; done
    echo "timeout while waiting for $what" >&2
    exit 1
}

echo "starting a collector and an agent"
"$bin/polymeter-collector" --listen "ipc://$data/collector" --store "$store" 2>"$data/collector.log" &
collector=$!
sed -e "s|@DATA@|$data|g" "$here/agent.toml" >"$data/agent.toml"
"$bin/polymeter-agent" --config "$data/agent.toml" 2>"$data/agent.log" &
agent=$!
wait_for "the agent" "$bin/polymeter" status --socket "$data/agent.sock"

echo "running a job for some seconds in the cgroup polymeter_$job"
entrances=""
for root in $(cgroups); do
    mkdir "$root/polymeter_$job" 2>/dev/null || continue
    entrances="$entrances $root/polymeter_$job/cgroup.procs"
done
[ -n "$entrances" ] || {
    echo "cannot create a cgroup; try: $bin/polymeter run -- COMMAND" >&2
    exit 1
}
wait_for "the agent to see the job" sh -c "'$bin/polymeter' jobs --socket '$data/agent.sock' | grep -q $job"
"$bin/polymeter" job start --socket "$data/agent.sock" --job "$job" --name demonstration --queue demo --account demo \
    --uid "${SUDO_UID:-$(id -u)}" --nodes "$(uname -n)" --cores "$(nproc)" --gpus 0 --memory 1G --time-limit 1:00 --no-agent
# shellcheck disable=SC2086 # the list is split into words
POLYMETER="$bin/polymeter" POLYMETER_SOCKET="$data/agent.sock" JOB="$job" sh "$here/workload.sh" "$data/scratch" $entrances &
workload=$!
sleep 2
echo "changing a period for a second: polymeter set memory.anon=5ms memory.file=5ms --for 1s"
"$bin/polymeter" set memory.anon=5ms memory.file=5ms --for 1s --socket "$data/agent.sock" --job "$job"
status=0
wait "$workload" || status=$?
workload=""

echo "sampled so far, by source:"
"$bin/polymeter" status --socket "$data/agent.sock" | sed -n '/^SOURCE/,/^$/p' | grep .
"$bin/polymeter" job end --socket "$data/agent.sock" --job "$job" --exit-code "$status"
for root in $(cgroups); do rmdir "$root/polymeter_$job" 2>/dev/null || true; done
wait_for "the agent to see the job's end" sh -c "! '$bin/polymeter' jobs --socket '$data/agent.sock' | grep -q $job"
kill "$agent" && wait "$agent"
kill "$collector" && wait "$collector"
agent="" collector=""
rm -f "$data/scratch"

"$bin/polymeter" report --store "$store" --html "$data/demo.html" "$job"
"$bin/polymeter" report --store "$store" "$job"
give_back
echo
echo "The report with charts is $data/demo.html, the samples are in $data/demo.db. To show every series:"
echo "    $bin/polymeter report --store $store --show all $job"
