#!/bin/sh
# A command for [job_end] of collector.toml: stores the summary of a job that has ended, as Jobstats writes it (JS1:...), in Slurm's
# AdminComment, where reportseff and job_defense_shield read it. See docs/how-to/slurm.md.
#
# The collector passes the summary in POLYMETER_JOBSTATS; the report on standard input is not needed. slurmctld refuses changes of jobs
# that have ended, so the record of slurmdbd is changed; the collector's user must be an operator or administrator of Slurm. A comment
# that does not begin with JS1: is left alone, as long as slurmctld has the job's record (MinJobAge, 300 s).
#
# sacctmgr of Slurm 22.05 writes comments in lower case, which destroys a summary. So the comment is read back.
PATH=/usr/bin:/bin
SQUEUE=${SQUEUE:-/usr/bin/squeue}
SACCTMGR=${SACCTMGR:-/usr/bin/sacctmgr}
SACCT=${SACCT:-/usr/bin/sacct}
exec </dev/null

case $POLYMETER_JOB_ID in '' | *[!0-9]*) exit 0 ;; esac
case $POLYMETER_JOBSTATS in JS1:?*) ;; *) exit 0 ;; esac

# The number of an array is also the number of its last task, and would change all tasks: hence the id with the task. Only fields
# that users cannot write.
record=$("$SQUEUE" -h -t all -j "$POLYMETER_JOB_ID" -O JobID:32,JobArrayID:64,admin_comment:64 2>/dev/null |
    sed -n "/^$POLYMETER_JOB_ID /p")
read -r number id comment <<END
$record
END
case $comment in
# Versions of squeue print different words for no comment.
'' | N/A | '(null)' | JS1:*) ;;
*)
    echo "the comment of job $number is left alone: $comment" >&2
    exit 0
    ;;
esac
case $id in
*[!0-9_]*)
    echo "job $number has not ended: $id" >&2
    exit 1
    ;;
esac
case $POLYMETER_JOB_DISPLAY_ID in
# A component of a heterogeneous job has an id of its own, and a record.
'' | *+*) id=${id:-$POLYMETER_JOB_ID} ;;
*) id=${id:-$POLYMETER_JOB_DISPLAY_ID} ;;
esac
write() { "$SACCTMGR" -i modify job where jobid="$id" set AdminComment="$1" >/dev/null; }
write "$POLYMETER_JOBSTATS" || exit 1
stored=$("$SACCT" -n -X -P -j "$id" -o AdminComment) || exit 1
[ "$stored" != "$POLYMETER_JOBSTATS" ] || exit 0
write ''
echo "Slurm did not keep the summary of job $id: does its sacctmgr write comments in lower case, as in 22.05?" >&2
exit 1
