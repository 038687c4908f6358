# The test in the guest: a job in Slurm's layout of cgroup version 2 is discovered and sampled until its end, its values
# equal the kernel's, a lease keeps its duration although the clock is set back, and the agent follows the clock then.
set -u
fail() { echo "FAILED: $*"; cat /tmp/*.log; exit 1; }
# The emulated CPU may be a hundred times slower than that of a quiet machine.
wait_for() { # COMMAND...
    seconds=240
    until "$@" >/dev/null 2>&1; do
        seconds=$((seconds - 1))
        [ $seconds -gt 0 ] || fail "timeout while waiting for: $*"
        sleep 1
    done
}

mkdir -p /etc/polymeter /out
cat >/etc/polymeter/agent.toml <<'EOF'
flush_interval = "200ms"
collector = "ipc:///run/collector"
jobs = ["system.slice/slurmstepd.scope/job_{job}"]
[baseline]
"cpu.*" = "100ms"
"memory.*" = "100ms"
"pids.*" = "100ms"
"io.*" = "100ms"
"pressure.*" = "1s"
"perf.page_faults" = "100ms"
"perf.context_switches" = "100ms"
# An emulated CPU needs more than the limits for real ones allow.
[limits]
job_cpu_percent = 100
node_cpu_percent = 100
EOF
polymeter-collector --listen ipc:///run/collector --store sqlite:/out/store.db 2>/tmp/collector.log &
collector=$!
polymeter-agent --config /etc/polymeter/agent.toml 2>/tmp/agent.log &
agent=$!
wait_for polymeter status

# Without delegation jobs have no memory metrics, which the doctor finds with the command that delegates.
scope=/sys/fs/cgroup/system.slice/slurmstepd.scope
place=$scope/job_7/step_0/user/task_0
mkdir -p $scope
polymeter doctor --role node >/tmp/doctor.log
grep -q '^problem *cgroups: /sys/fs/cgroup/system.slice does not delegate `memory`' /tmp/doctor.log || fail "the doctor does not find the missing delegation"
remedy=$(sed -n 's,^ *-> \(echo +memory > /sys/fs/cgroup/system.slice/cgroup.subtree_control\)$,\1,p' /tmp/doctor.log)
eval "$remedy"
echo "delegation: the doctor finds that it is missing: $remedy"

# The hierarchy that slurmd creates: controllers are enabled level by level, and the processes are in the last one.
mkdir -p $place
for directory in /sys/fs/cgroup/system.slice $scope $scope/job_7 $scope/job_7/step_0 $scope/job_7/step_0/user; do
    echo "+cpu +memory +io +pids" >$directory/cgroup.subtree_control || fail "no controllers in $directory"
done
echo 300M >$scope/job_7/memory.max
polymeter doctor --role node >/tmp/doctor.log
grep -q '^ok *cgroups: version 2 with .*memory' /tmp/doctor.log || fail "the doctor finds a fault of sound cgroups"
wait_for polymeter plan --job 7

# A job that computes, allocates memory and writes, and then sleeps.
sh -c "echo \$\$ >$place/cgroup.procs
    head -c 60000000 /dev/zero | tail -c 50000000 >/dev/null
    i=0; while [ \$i -lt 200000 ]; do i=\$((i + 1)); done
    dd if=/dev/zero of=/mnt/file bs=1M count=8 oflag=direct 2>/dev/null
    touch /tmp/worked; while [ ! -e /tmp/end ]; do sleep 0.2; done" &
wait_for test -e /tmp/worked

# A lease of 8 s, during which the wall clock is set back by half a minute.
polymeter set --job 7 'cpu.usage=10ms' --for 8s >/tmp/set.log || fail "no lease"
began=$(cut -d. -f1 /proc/uptime)
date -s "@$(($(date +%s) - 30))" >/dev/null || fail "cannot set the clock"
wait_for sh -c "! polymeter plan --job 7 | grep -q lease"
took=$(($(cut -d. -f1 /proc/uptime) - began))
[ $took -le 16 ] || fail "a lease of 8 s lasted $took s after the clock was set back"
# The clock of the collector on the other machine was not set back.
ip link set eth0 up && ip address add 10.0.2.15/24 dev eth0 || fail "no network"
polymeter doctor --role node >/tmp/doctor.log
grep -q '^problem *clock: the clock of this machine is \(2[5-9]\|3[0-9]\).* s behind that of the collector' /tmp/doctor.log || fail "the doctor does not find the wrong clock"
echo "clock: the doctor finds$(sed -n 's/^problem *clock//p' /tmp/doctor.log)"
echo "lease: ended after $took s by a clock that cannot be set"

# While nothing changes, the last samples must equal the kernel's current values.
sleep 1
for file in cpu.stat memory.current memory.peak memory.stat memory.events memory.max pids.current pids.peak io.stat; do
    cp $scope/job_7/$file /out/$file
done
touch /tmp/end
wait_for sh -c "! grep -q . $place/cgroup.procs"
rmdir $place $scope/job_7/step_0/user $scope/job_7/step_0 $scope/job_7 || fail "the job's cgroups are busy"
wait_for sh -c "! polymeter jobs | grep -q '^7 '"
# While the job ran its samples went on by the clock before. Without a job the agent begins anew with the clock.
grep -q 'the clock of this node was set back by' /tmp/agent.log || fail "the agent does not notice that the clock was set"
wait_for grep -q 'the clock of this node was set: a new session dates by it' /tmp/agent.log
wait_for polymeter status
dates=$(polymeter status --json | tr -d ' \n' | sed -n 's/.*"now_us":\([0-9]*\)[0-9]\{6\}[,}].*/\1/p')
behind=$(($(date +%s) - dates))
[ $behind -ge 0 ] && [ $behind -le 15 ] || fail "the agent dates by another clock: $behind s behind"
echo "clock: after the job the agent dates by the clock that was set"
sleep 3
polymeter status --json >/out/status.json
kill $agent
wait $agent || fail "the agent ended badly"
kill $collector
wait $collector || fail "the collector ended badly"
cp /tmp/agent.log /tmp/collector.log /out
