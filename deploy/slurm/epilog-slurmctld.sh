#!/bin/sh
# Slurm's EpilogSlurmctld: reports the final state of a job, its name and its requested resources to the collector. See docs/how-to/slurm.md.
#
# The nodes' epilogs do not know it: a job that was cancelled or reached its time limit looks there like one that succeeded.
# slurmctld runs this as SlurmUser on the controller, and keeps the job COMPLETING until it returns. So the state is queried
# in the background, in a session of its own, until it is final. The exit status is always 0.
#
# In collector.toml, `scheduler_user` must be SlurmUser. The address of the collector is in /etc/polymeter/client.toml or
# POLYMETER_COLLECTOR.
PATH=/usr/bin:/bin
POLYMETER=${POLYMETER:-/usr/bin/polymeter}
SQUEUE=${SQUEUE:-/usr/bin/squeue}
# The number of attempts, one a second, until the epilogs have ended and the collector has the job's first samples.
ATTEMPTS=${ATTEMPTS:-60}
# Where a report is kept that no collector took meanwhile, and the seconds between two deliveries.
KEPT=${KEPT:-/var/tmp/polymeter-reports-$(id -u)}
PAUSE=${PAUSE:-60}

case $SLURM_JOB_ID in '' | *[!0-9]*) exit 0 ;; esac
if [ "$1" != --in-background ]; then
    # slurmctld kills the script's process group at its end: the script returns when the background process has left the group.
    setsid -f "$0" --in-background 2>/dev/null </dev/null | head -n 1 >/dev/null
    exit 0
fi
echo left
exec >/dev/null

# Reports the job. Remembers that the collector was away: it may lack jobs that it will have.
report() {
    "$POLYMETER" job state --strict "$@" 2>/dev/null && exit 0
    [ $? -ne 3 ] || away=yes
}
# Keeps the report, if the collector was away. One process delivers what is kept.
keep() {
    [ -n "$away" ] || exit 0
    "$POLYMETER" job state --strict --keep "$KEPT" "$@" 2>/dev/null || exit 0
    exec flock -n "$KEPT/lock" sh -c 'while sleep "$2"; do "$0" job state --strict --keep "$1" --deliver && exit; done' \
        "$POLYMETER" "$KEPT" "$PAUSE" 2>/dev/null
}

attempt=0 away=''
set --
while [ "$attempt" -lt "$ATTEMPTS" ]; do
    # slurmctld may be busy or restart. It forgets jobs MinJobAge after their ends.
    [ "$attempt" -eq 0 ] || sleep 1
    attempt=$((attempt + 1))
    # Only fields that users cannot set, unlike the comment. The name, which they can set, is in the environment. Each task of an
    # array has a line.
    states=$("$SQUEUE" -h -t all -j "$SLURM_JOB_ID" -O JobID:32,State:32,exit_code:16,TimeLimit:32,tres-alloc:512 2>&1) ||
        case $states in *'Invalid job id'*) break ;; *) continue ;; esac
    read -r job state status limit resources <<END
$(printf '%s\n' "$states" | sed -n "/^$SLURM_JOB_ID /p")
END
    case $state in
    COMPLETED | FAILED | TIMEOUT | DEADLINE | CANCELLED | OUT_OF_MEMORY | NODE_FAIL | PREEMPTED | BOOT_FAIL)
        case $status in '' | *[!0-9]*) exit 0 ;; esac
        # The status has the format of wait(2).
        set -- --job "$job" --state "$state" --exit-code $((status >> 8 & 255)) --exit-signal $((status & 127)) \
            --time-limit "$limit" --tres "$resources"
        report "$@"
        ;;
    # COMPLETING is followed by the final state; any other state means that the job runs again.
    COMPLETING) ;;
    *) exit 0 ;;
    esac
done
[ $# -eq 0 ] || keep "$@"
exit 0
