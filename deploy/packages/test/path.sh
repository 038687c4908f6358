#!/bin/bash
# Executes the commands of docs/how-to/install.md within a new Debian tree: path.sh PAGE PACKAGES. The page's blocks are marked with
# `executed as root` or `executed as user`. systemd, ssh and Slurm are represented by the functions below: they start the
# ExecStart of the packages' units, copy files, and run a job between the packages' Prolog and Epilog.
set -eu
page=$1
packages=$2
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
job=$((9000000 + $$))
user=zoe
fail() { echo "FAILED: $*"; tail -n 40 /tmp/polymeter-*.log /tmp/path.log 2>/dev/null || true; exit 1; }

unit_of() { ls "/usr/lib/systemd/system/$1.service" "/lib/systemd/system/$1.service" 2>/dev/null | head -n 1; }
start_unit() { # starts a unit as systemd does: its user, its directories, and it is ready when it tells so
    local unit notify=/run/notify-$1
    unit=$(unit_of "$1") || fail "no unit $1"
    [ -n "$unit" ] || fail "no unit $1"
    value() { sed -n "s/^$1=//p" "$unit" | tail -n 1; }
    install -d -o "$(value User)" -g "$(value Group)" "/run/$(value RuntimeDirectory)" "/var/lib/$(value StateDirectory)"
    rm -f "$notify"
    perl -MSocket -e 'socket(my $s, AF_UNIX, SOCK_DGRAM, 0) or die; bind($s, sockaddr_un($ARGV[0])) or die; chmod 0777, $ARGV[0];
        alarm 60; while (1) { recv($s, my $m, 4096, 0); exit 0 if $m =~ /READY=1/ }' "$notify" &
    local waiter=$!
    while [ ! -S "$notify" ]; do sleep 0.1; done
    # shellcheck disable=SC2046
    NOTIFY_SOCKET=$notify setpriv --reuid "$(value User)" --regid "$(value Group)" --clear-groups $(value ExecStart) \
        >>"/tmp/$1.log" 2>&1 &
    echo $! >"/run/pid-$1"
    wait $waiter || fail "$1 does not become ready"
    # An administrator needs longer for the next command than the agent for the connection.
    local tries=60
    while [ -e /run/pid-polymeter-agent ] && [ -e /run/pid-polymeter-collector ]; do
        polymeter status --json 2>/dev/null | grep -q '"connected": *true' && break
        tries=$((tries - 1)) && [ $tries -gt 0 ] || fail "no connection"
        sleep 0.5
    done
}
systemctl() {
    case "$1 ${2:-}" in
    "enable --now") start_unit "$3" ;;
    start\ *) start_unit "$2" ;;
    stop\ *) kill "$(cat "/run/pid-$2")" && wait "$(cat "/run/pid-$2")" && rm "/run/pid-$2" ;;
    *) fail "systemctl $* is not represented" ;;
    esac
}
scp() {
    local from=${1#127.0.0.1:} to=${2#127.0.0.1:}
    [ -d "$to" ] && to=$to/$(basename "$from")
    [ "$from" -ef "$to" ] || cp "$from" "$to"
}
entrances=""
sbatch() { # --wait --wrap COMMAND
    local root group uid
    uid=$(id -u $user)
    export SLURM_JOB_ID=$job SLURM_JOB_UID=$uid SLURM_JOB_USER=$user SLURM_JOB_NAME=first SLURM_JOB_PARTITION=all
    /usr/libexec/polymeter/slurm/prolog
    for root in $(awk '$3 == "cgroup" && $4 ~ /(^|,)(memory|cpuacct|pids)(,|$)/ { print $2 }' /proc/mounts); do
        group=$root/slurm/uid_$uid/job_$job
        mkdir -p "$group" && entrances="$entrances $group"
    done
    for root in $(awk '$3 == "cgroup2" { print $2 }' /proc/mounts); do
        group=$root/system.slice/slurmstepd.scope/job_$job
        mkdir -p "$group" && entrances="$entrances $group"
    done
    [ -n "$entrances" ] || fail "cannot create a cgroup"
    bash -c 'for group in '"$entrances"'; do echo $$ >$group/cgroup.procs; done
        exec setpriv --reuid '$user' --regid '$user' --clear-groups sh -c "$1"' job "$3" || [ $? = 124 ]
    SLURM_JOB_EXIT_CODE2=0:0 /usr/libexec/polymeter/slurm/epilog
    remove_groups
    unset "${!SLURM_@}"
    local tries=60
    until polymeter jobs --ended --json | grep -q "\"$job\""; do
        tries=$((tries - 1)) && [ $tries -gt 0 ] || fail "the job does not appear among the ended ones"
        sleep 0.5
    done
}
remove_groups() {
    local group
    for group in $entrances; do
        rmdir "$group" 2>/dev/null || { sleep 1 && rmdir "$group" 2>/dev/null; } || true
        rmdir "$(dirname "$group")" 2>/dev/null || true
    done
}
trap remove_groups EXIT

# execute USER COMMAND
execute() {
    local command=$2
    command=${command//COLLECTOR/127.0.0.1}
    command=${command//JOB/$job}
    echo "  $1: $command"
    case "$1 $command" in
    *" sbatch "* | "user sbatch "*) eval "$command" ;;
    user\ *) setpriv --reuid $user --regid $user --clear-groups env HOME=/tmp bash -c "cd /tmp && $command" ;;
    # It asks on a terminal.
    root\ polymeter\ setup\ *) echo y | script -qefc "$command" /dev/null ;;
    *) eval "$command" ;;
    esac >>/tmp/path.log 2>&1 </dev/null || fail "status $? of: $command"
}

cd "$packages"
echo 'APT::Get::Assume-Yes "true";' >/etc/apt/apt.conf.d/99path
useradd --system slurm
useradd -M $user
install -d -o munge -g munge /run/munge
setpriv --reuid munge --regid munge --clear-groups munged

commands=0
seconds=$SECONDS
as=""
inside=""
while IFS= read -r line; do
    case $line in
    '<!-- executed as '*) as=${line#<!-- executed as } && as=${as% -->} ;;
    '```sh') [ -z "$as" ] || inside=yes ;;
    '```') inside="" as="" ;;
    *) [ -z "$inside" ] || [ -z "$line" ] || { execute "$as" "$line" && commands=$((commands + 1)); } ;;
    esac
done <"$page"
[ $commands -ge 20 ] || fail "the page has only $commands commands"
polymeter report $job >/tmp/report 2>&1 || fail "no report after the restoration"
grep -q "job $job" /tmp/report || fail "the report is of another job"
echo "the administrator's path: $commands commands in $((SECONDS - seconds)) s"

# One fault at a time, which the doctor must find with its remedy.
finds() { # FAULT PATTERN [OPTION...]
    local fault=$1 pattern=$2
    shift 2
    polymeter doctor "$@" >/tmp/doctor.log 2>&1 && { cat /tmp/doctor.log; fail "the doctor finds no problem: $fault"; }
    grep -q -- "$pattern" /tmp/doctor.log || { cat /tmp/doctor.log; fail "the doctor does not find: $fault"; }
}
polymeter doctor >/tmp/doctor.log 2>&1 || { cat /tmp/doctor.log; fail "the doctor finds a problem on a sound machine"; }
chown root: "/etc/polymeter/$(hostname).key"
finds "a wrong key owner" "chown polymeter: /etc/polymeter/$(hostname).key"
chown polymeter: "/etc/polymeter/$(hostname).key"
mkdir /etc/slurm
echo 'ClusterName=lab' >/etc/slurm/slurm.conf
finds "missing scripts" "Prolog"
rm -r /etc/slurm
systemctl stop polymeter-collector
finds "no collector" "collector"
systemctl start polymeter-collector
systemctl stop polymeter-agent
finds "no agent" "systemctl\|polymeter-agent" --role node
systemctl stop polymeter-collector
echo "the doctor finds wrong owners, missing scripts, no collector and no agent with the packaged files"
