# The test in the guest: a real slurmd with the cgroup plug-in for version 2, and the scripts of deploy/, which start the agent.
set -u
echo "guest: up after $(cut -d. -f1 /proc/uptime) s"
fail() { echo "FAILED: $*"; tail -n 40 /tmp/*.log; exit 1; }
wait_for() { # COMMAND...
    until=$(($(cut -d. -f1 /proc/uptime) + 240))
    until "$@" >/dev/null 2>&1; do
        [ "$(cut -d. -f1 /proc/uptime)" -lt $until ] || fail "timeout while waiting for: $*"
        sleep 0.5
    done
}
submit() { su alice -c "cd /tmp && sbatch --parsable -o /dev/null $*" || fail "cannot submit $*"; }
# A task of an array is named by both numbers: that of its last task is also the number of the array.
reports_name_and_state() { # ID NAME
    su alice -c "polymeter report --json $2" >/out/report.$1 &&
        grep -q '"state": "' /out/report.$1 && grep -q '"name": "' /out/report.$1
}
has_ended() { squeue -h -t all -j "$1" -O JobID:32,State:32 | grep "^$1 " | grep -qv -e PENDING -e RUNNING -e COMPLETING; }

mkdir -p /var/spool/slurmctld /var/spool/slurmd /var/log/munge /var/lib/munge /run/munge /run/slurmctld /run/polymeter /out/last
chmod 755 /var/lib/munge /run/munge
chmod 1777 /tmp /out
chown slurm /var/spool/slurmctld /run/slurmctld
touch /tmp/slurmctld.log && chown slurm /tmp/slurmctld.log

cat >/etc/polymeter/agent.toml <<'END'
flush_interval = "200ms"
collector = "ipc:///run/collector"
[baseline]
"cpu.usage" = "500ms"
"cpu.user" = "1d"
"memory.*" = "500ms"
"pressure.*" = "1s"
[steps]
"cpu.usage" = "1s"
"memory.current" = "1s"
[tasks]
"cpu.usage" = "1s"
END
cat >/etc/polymeter/collector.toml <<'END'
listen = "ipc:///run/collector"
store = "sqlite:/out/store.db"
control_socket = "/run/polymeter/collector.sock"
scheduler_user = "slurm"
END
echo 'collector = "/run/polymeter/collector.sock"' >/etc/polymeter/client.toml

# The resolver finds no address if the loopback address is the only one.
ip address add 192.0.2.1/32 dev lo
munged --force 2>/tmp/munged.log
polymeter-collector --config /etc/polymeter/collector.toml 2>/tmp/collector.log &
collector=$!
su slurm -c 'exec slurmctld -D -i' >/tmp/slurmctld.err.log 2>&1 &
# The cgroup of a service with Delegate=yes, as systemd creates it.
slurmd=/sys/fs/cgroup/system.slice/slurmd.service
mkdir -p $slurmd
echo "+cpuset +cpu +io +memory +pids" >/sys/fs/cgroup/system.slice/cgroup.subtree_control
sh -c "echo \$\$ >$slurmd/cgroup.procs; exec slurmd -D" >/tmp/slurmd.err.log 2>&1 &
wait_for sh -c 'scontrol show node guest | grep -q State=IDLE'
echo "slurm: $(slurmd -V), idle after $(cut -d. -f1 /proc/uptime) s"

# The last values of each job's cgroup before slurmd removes it.
scope=/sys/fs/cgroup/system.slice/guest_slurmstepd.scope
while [ ! -e /tmp/watched ]; do
    for directory in $scope/job_*; do
        while read -r name value; do
            [ "$name" != usage_usec ] || echo "$value" >"/out/last/${directory##*_}"
        done <"$directory/cpu.stat"
    done 2>/dev/null
    sleep 0.05
done &

solve=$(submit -J solve -n 2 --mem=200 --time=10 /solve.sh)
array=$(submit -J sweep --array=3-4 --wrap "'dd if=/dev/zero of=/dev/null bs=20M count=20; sleep 1'")
# Its memory exceeds its limit.
hungry=$(submit -J hungry --mem=30 --wrap "'sleep 1; dd if=/dev/zero of=/dev/null bs=100M count=1'")
requeued=$(submit -J requeued --requeue /requeued.sh)

wait_for test -e /tmp/computed.0 -a -e /tmp/computed.1
polymeter jobs >/out/jobs
find "$scope/job_$solve" -type d >/out/cgroups
cat "/proc/$(pidof polymeter-agent)/cgroup" >/out/agent.cgroup
su alice -c "sstat -n -P -a -j $solve -o JobID,NTasks,MaxRSS,AveCPU" >/out/sstat || fail "no statistics of the steps"
touch /tmp/end
# The tasks of the array have ids of their own.
ids="$solve $hungry $requeued $(scontrol -o show job "$array" | sed -n 's/^JobId=\([0-9]*\) .*/\1/p' | tr '\n' ' ')"

wait_for sh -c "polymeter jobs | grep -q '^$requeued '"
scontrol requeue "$requeued" || fail "cannot requeue"
# A requeued job is held back for a while. The command fails if the job runs already.
runs_again() {
    scontrol update jobid="$requeued" starttime=now
    has_ended "$requeued"
}
wait_for runs_again

# The final states are reported in the background.
for id in $ids; do
    wait_for has_ended "$id"
    scontrol -o show job "$id" | grep "^JobId=$id " >"/out/job.$id"
    task=$(sed -nE 's/.* ArrayJobId=([0-9]+) ArrayTaskId=([0-9]+) .*/\1_\2/p' "/out/job.$id")
    wait_for reports_name_and_state "$id" "${task:-$id}"
done
echo "$ids" >/out/ids
su slurm -c "polymeter report $solve" >/out/refused 2>&1 && fail "the user slurm reads the job of alice"
touch /tmp/watched
wait_for sh -c '! pidof polymeter-agent'
find $scope -name 'job_*' | grep . && fail "slurmd left cgroups"
kill $collector
wait $collector || fail "the collector ended badly"
cp /tmp/*.log /out
