#!/bin/sh
# Slurm's PrologSlurmctld: reports the name and the requested resources of a job to the collector. See docs/how-to/slurm.md.
#
# The nodes' prologs do not know them. slurmctld runs this as SlurmUser on the controller, and the job waits until it returns. So
# the report is made in the background, in a session of its own, when the nodes have begun to track the job. The exit status is
# always 0, since a failing PrologSlurmctld requeues the job.
#
# In collector.toml, `scheduler_user` must be SlurmUser. The address of the collector is in /etc/polymeter/client.toml or
# POLYMETER_COLLECTOR.
PATH=/usr/bin:/bin
POLYMETER=${POLYMETER:-/usr/bin/polymeter}
SQUEUE=${SQUEUE:-/usr/bin/squeue}
# The number of attempts, one a second, until the collector has the job's first samples.
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
    attempt=$((attempt + 1))
    sleep 1
    # Only fields that users cannot set. The name, which they can, is in the environment.
    jobs=$("$SQUEUE" -h -t all -j "$SLURM_JOB_ID" -O JobID:32,State:32,TimeLimit:32,tres-alloc:512 2>&1) ||
        case $jobs in *'Invalid job id'*) break ;; *) continue ;; esac
    read -r job state limit resources <<END
$(printf '%s\n' "$jobs" | sed -n "/^$SLURM_JOB_ID /p")
END
    # EpilogSlurmctld reports all of that for a job that has ended.
    case $state in PENDING | CONFIGURING | RUNNING | SUSPENDED | STOPPED | COMPLETING) ;; *) exit 0 ;; esac
    set -- --job "$job" --time-limit "$limit" --tres "$resources"
    report "$@"
done
[ $# -eq 0 ] || keep "$@"
exit 0
