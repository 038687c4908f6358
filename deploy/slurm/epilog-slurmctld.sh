#!/bin/sh
# Slurm's EpilogSlurmctld: tells the collector how a job ended. See docs/how-to/slurm.md.
#
# The nodes' epilogs are not told: to them a job that was cancelled or reached its time limit looks like one that succeeded.
# slurmctld runs this as SlurmUser on the controller, and keeps the job COMPLETING until it returns. So the state is asked
# for in the background, in a session of its own, until it is final. Nothing here fails: the exit status is always 0.
#
# The collector must know SlurmUser as `scheduler_user` (collector.toml), and be reached from here: /etc/polymeter/client.toml
# or POLYMETER_COLLECTOR says where it is.
PATH=/usr/bin:/bin
POLYMETER=${POLYMETER:-/usr/bin/polymeter}
SQUEUE=${SQUEUE:-/usr/bin/squeue}
# How often to ask, once a second: for the epilogs to end, and for the collector to have the job's first samples.
ATTEMPTS=${ATTEMPTS:-60}

case $SLURM_JOB_ID in '' | *[!0-9]*) exit 0 ;; esac
if [ "$1" != --in-background ]; then
    # slurmctld kills what is left of this script's process group: it returns when the other has left that.
    setsid -f "$0" --in-background 2>/dev/null </dev/null | head -n 1 >/dev/null
    exit 0
fi
echo left
exec >/dev/null

attempt=0
while [ "$attempt" -lt "$ATTEMPTS" ]; do
    attempt=$((attempt + 1))
    # Fields that no user can write, as the job's name and comment are. Of an array all tasks have a line.
    told=$("$SQUEUE" -h -t all -j "$SLURM_JOB_ID" -O JobID:32,State:32,exit_code:16 2>/dev/null) || exit 0
    read -r job state status <<END
$(printf '%s\n' "$told" | sed -n "/^$SLURM_JOB_ID /p")
END
    case $state in
    COMPLETED | FAILED | TIMEOUT | DEADLINE | CANCELLED | OUT_OF_MEMORY | NODE_FAIL | PREEMPTED | BOOT_FAIL)
        case $status in '' | *[!0-9]*) exit 0 ;; esac
        # The status is that of wait(2).
        "$POLYMETER" job state --strict --job "$job" --state "$state" \
            --exit-code $((status >> 8 & 255)) --exit-signal $((status & 127)) && exit 0
        ;;
    # It ends; or it waits to run again, in which case this was not its end.
    COMPLETING) ;;
    *) exit 0 ;;
    esac
    sleep 1
done
exit 0
