#!/usr/bin/env bash
# Executes the commands of docs/how-to/install.md on three machines with systemd, MUNGE and Slurm: path.sh PAGE PACKAGES WORK. `head` has
# the collector and slurmctld, `node1` slurmd, and users work on `login`. The machines are Debian trees in namespaces of this one
# (machine.sh). The page's blocks are marked with `executed as USER on MACHINE`. Afterwards there is one fault at a time, which
# `polymeter doctor` must find. Needs root, cgroup version 1, mmdebstrap and iproute2. The tree is made once.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
page=$(realpath "$1")
packages=$(realpath "$2")
work=$(realpath "$3")
user=zoe

cgroups() { awk '$3 == "cgroup" || $3 == "cgroup2" { print $2 }' /proc/mounts; }
if [ "${4:-}" = "" ]; then
    [ -e "$work/machine.tar" ] || {
        include=systemd-sysv,dbus,slurmctld,slurmd,slurm-client,munge,openssh-server,iproute2,procps,netbase,libzmq5,sqlite3,adduser
        mmdebstrap --quiet --variant=minbase --include="$include" bookworm "$work/machine.new.tar"
        mv "$work/machine.new.tar" "$work/machine.tar"
    }
    cgroup=polymeter_path$$
    for root in $(cgroups); do
        for directory in $cgroup $cgroup/head $cgroup/node1 $cgroup/login; do
            mkdir -p "$root/$directory"
            # Processes cannot enter a cgroup without CPUs.
            [ ! -e "$root/cpuset.mems" ] || for file in cpuset.cpus cpuset.mems; do cat "$root/$file" >"$root/$directory/$file"; done
        done
    done
    clean_up() {
        local root
        for root in $(cgroups); do
            for _ in 1 2 3 4 5; do
                find "$root/$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || true
                [ -e "$root/$cgroup" ] || break
                sleep 0.5
            done
        done
        rm -rf --one-file-system "$work"/{head,node1,login}{,.pid}
    }
    trap clean_up EXIT
    trap 'exit 130' INT TERM
    # All processes, mounts and links of the test end with the first process of its namespace.
    unshare --mount --pid --net --fork --kill-child --propagation private "$0" "$page" "$packages" "$work" "$cgroup" </dev/null
    exit
fi
cgroup=$4
mount -t proc proc /proc

declare -A pid
# The output of the page's commands goes to a file; failures are shown all the same.
exec 3>&1
fail() {
    exec >&3 2>&3
    echo "FAILED: $*"
    tail -n 40 "$work/path.log" || true
    for machine in "${!pid[@]}"; do
        echo "== journal of $machine"
        nsenter -t "${pid[$machine]}" -a journalctl --no-pager -q -n 40 -u 'polymeter*' -u 'slurm*' -u munge || true
    done
    # With HOLD=1 the machines go on, so that one can look around: nsenter -t PID -a, where PID is that of a systemd.
    [ -z "${HOLD:-}" ] || sleep infinity
    exit 1
}
# on MACHINE USER COMMAND
on() {
    local user=$2 home=/root
    [ "$user" = root ] || home=/home/$user
    nsenter -t "${pid[$1]}" -a --wdns=/ env -i HOME=$home PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
        TERM=xterm DEBIAN_FRONTEND=noninteractive setpriv --reuid "$user" --regid "$user" --init-groups bash -c "cd && $3"
}
wait_for() { # SECONDS MACHINE USER COMMAND
    local until=$((SECONDS + $1))
    until on "$2" "$3" "$4" >"$work/tried" 2>&1; do
        [ $SECONDS -lt $until ] || { cat "$work/tried" >&3; fail "timeout on $2 while waiting for: $4"; }
        sleep 0.3
    done
}

# Three machines of a cluster with Slurm and MUNGE, whose root may log in on head.
prepare() { # MACHINE SERVICE...
    local machine=$1 tree=$work/$1 service
    shift
    rm -rf --one-file-system "$tree"
    mkdir "$tree"
    tar -C "$tree" -xf "$work/machine.tar" --exclude './dev/*'
    printf '%s\n' '127.0.0.1 localhost' '192.0.2.1 head' '192.0.2.2 node1' '192.0.2.3 login' >"$tree/etc/hosts"
    echo "$machine" >"$tree/etc/hostname"
    rm -f "$tree"/etc/systemd/system/multi-user.target.wants/slurm*
    for service in "$@"; do
        ln -s "/lib/systemd/system/$service.service" "$tree/etc/systemd/system/multi-user.target.wants/$service.service"
    done
    cat >"$tree/etc/slurm/slurm.conf" <<'END'
ClusterName=lab
SlurmctldHost=head
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmdParameters=config_overrides
MpiDefault=none
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup,task/affinity
JobAcctGatherType=jobacct_gather/cgroup
PrologFlags=Alloc,Contain
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=1,batch_sched_delay=0
ReturnToService=2
NodeName=node1 CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES DefaultTime=10 MaxTime=60 State=UP
END
    printf '%s\n' CgroupPlugin=cgroup/v1 CgroupMountpoint=/sys/fs/cgroup ConstrainCores=yes ConstrainRAMSpace=yes >"$tree/etc/slurm/cgroup.conf"
    chroot "$tree" useradd -m -u 4001 $user
    mkdir -p -m 700 "$tree/root/.ssh"
    cp "$work/ssh" "$tree/root/.ssh/id_ed25519"
    cp "$work/ssh.pub" "$tree/root/.ssh/authorized_keys"
    echo 'StrictHostKeyChecking accept-new' >"$tree/root/.ssh/config"
    echo 'APT::Get::Assume-Yes "true";' >"$tree/etc/apt/apt.conf.d/99test"
    cp "$packages"/*.deb "$tree/root/"
}
start() { # MACHINE ADDRESS
    local machine=$1
    rm -f "$work/$machine.pid"
    "$here/machine.sh" "$work/$machine" "$machine" "$cgroup/$machine" >>"$work/path.log" 2>&1 &
    until [ -s "$work/$machine.pid" ]; do sleep 0.1; done
    pid[$machine]=$(cat "$work/$machine.pid")
    ip link add "$machine" type veth peer name eth0 netns "${pid[$machine]}"
    ip link set "$machine" master cluster up
    nsenter -t "${pid[$machine]}" -n sh -c \
        "ip link set lo up && ip address add $2/24 dev eth0 && ip link set eth0 up"
}
: >"$work/path.log"
rm -f "$work"/ssh{,.pub}
ssh-keygen -q -t ed25519 -N '' -f "$work/ssh"
ip link add cluster type bridge
ip link set cluster up
prepare head slurmctld
prepare node1 slurmd
prepare login
# The store has a small disk of its own.
echo 'tmpfs /var/lib/polymeter tmpfs size=300M,mode=755 0 0' >>"$work/head/etc/fstab"
start head 192.0.2.1
start node1 192.0.2.2
start login 192.0.2.3
for machine in head node1 login; do
    wait_for 60 $machine root 'systemctl is-active -q multi-user.target'
done
wait_for 60 login root 'sinfo -h -o %t | grep -qx idle'
echo "three machines with $(on login root 'sinfo --version') and $(on head root 'systemctl --version | head -n 1')"

findings() { # MACHINE LEVELS: lines of CHECK TAB REMEDY
    on "$1" root 'polymeter doctor --json || true' | python3 -c '
import json, sys
for finding in json.load(sys.stdin)["findings"]:
    if finding["level"] in sys.argv[1:]:
        print(finding["check"], finding["remedy"], sep="\t")' ${2}
}
# Does what the doctor says about the scheduler: an administrator reads the remedies and types them. A remedy is COMMAND, and in FILE:
# LINE, then COMMAND.
connect_slurm() { # MACHINE
    local check remedy command line then machine
    while IFS=$'\t' read -r check remedy; do
        [ "$check" = slurm ] || continue
        echo "  root@$1: $remedy"
        then=${remedy##*, then }
        remedy=${remedy%, then *}
        command=${remedy%%, and in /etc/slurm/slurm.conf: *}
        line=${remedy##*, and in /etc/slurm/slurm.conf: }
        on "$1" root "$command" || fail "$command"
        # slurm.conf is the same file on all machines.
        for machine in head node1 login; do echo "$line" >>"$work/$machine/etc/slurm/slurm.conf"; done
        # `scontrol reconfigure` concerns all daemons.
        on "$1" root "$then" || fail "$then"
        commands=$((commands + 2))
    done < <(findings "$1" "problem warning")
}
has_only_slurm() { # MACHINE
    local problems
    problems=$(findings "$1" problem | cut -f1 | sort -u)
    [ "$problems" = slurm ]
}

# execute USER MACHINE COMMAND
execute() {
    local account=$1 machine=$2 command=$3 status=0
    [ "$account" != user ] || account=$user
    command=${command//COLLECTOR/head}
    command=${command//JOB/$job}
    echo "  $account@$machine: $command"
    case $command in
    # It asks on a terminal.
    polymeter\ setup\ *) on "$machine" "$account" "echo y | script -qefc '$command' /dev/null" ;;
    sbatch\ *)
        on "$machine" "$account" "$command" >"$work/sbatch" || fail "$command"
        job=$(sed -n 's/^Submitted batch job //p' "$work/sbatch")
        ;;
    "polymeter jobs --ended") wait_for 60 "$machine" "$account" "polymeter jobs --ended | grep '^$job '" ;;
    "polymeter report "*)
        # The controller tells the final state some seconds after the end.
        wait_for 60 "$machine" "$account" "$command --json | grep -q '\"state\": *\"'"
        on "$machine" "$account" "$command" | tee "$work/report"
        seconds_to_report=$((SECONDS - began))
        ;;
    "polymeter doctor"*)
        # Right after the start, what is connected a moment later is not yet.
        local until=$((SECONDS + 30))
        until on "$machine" "$account" "polymeter doctor >/dev/null" || has_only_slurm "$machine"; do
            [ $SECONDS -lt $until ] || break
            sleep 0.3
        done
        if findings "$machine" "problem warning" | grep ^slurm >/dev/null; then
            connect_slurm "$machine"
        fi
        on "$machine" "$account" "$command" || status=$?
        return $status
        ;;
    *) on "$machine" "$account" "$command" ;;
    esac
}

job="" commands=0 began=$SECONDS seconds_to_report="" as="" where="" inside=""
while IFS= read -r line; do
    case $line in
    '<!-- executed as '*' on '*) read -r as where <<<"$(sed -E 's/<!-- executed as (.*) on (.*) -->/\1 \2/' <<<"$line")" ;;
    '```sh') [ -z "$as" ] || inside=yes ;;
    '```') inside="" as="" ;;
    *)
        [ -n "$inside" ] && [ -n "$line" ] || continue
        execute "$as" "$where" "$line" </dev/null >"$work/output" 2>&1 || { cat "$work/output"; fail "$line"; }
        grep -h "^  [a-z]*@" "$work/output"
        cat "$work/output" >>"$work/path.log"
        commands=$((commands + 1))
        ;;
    esac
done <"$page"
[ $commands -ge 20 ] || fail "the page has only $commands commands"
grep -q "job $job" "$work/report" || { cat "$work/report"; fail "the report is of another job"; }
on login $user "polymeter report $job --json" >"$work/report.json" || fail "no report after the restoration"
python3 - "$work/report.json" "$(on login root "scontrol -o show job $job")" <<'END' || fail "the report differs from Slurm's record"
import json, sys
report, record = json.load(open(sys.argv[1])), dict(word.split("=", 1) for word in sys.argv[2].split() if "=" in word)
assert report["job"] == record["JobId"] and report["owner"] == record["UserId"].split("(")[0], (report["job"], report["owner"], record)
assert report["name"] == record["JobName"] and report["state"] == record["JobState"] == "COMPLETED", (report["name"], report["state"], record)
END
echo "the administrator's path: $commands commands; from nothing to the report of the first job $seconds_to_report s"

# One fault at a time. The machine is sound between them. The clock is that of this machine, and delegation that of cgroup version 2: other
# tests have these faults.
sound() { wait_for 60 "$1" root 'polymeter doctor'; }
finds() { # FAULT MACHINE PATTERN
    wait_for 30 "$2" root "polymeter doctor >/tmp/doctor.log; [ \$? = 1 ] && grep -q -- '$3' /tmp/doctor.log"
    echo "  $1: $(on "$2" root "grep -m1 -A1 -- '$3' /tmp/doctor.log | tr -s ' \n' ' '")"
}
for machine in head node1 login; do sound $machine; done
echo "the doctor finds"
on node1 root 'chown root: /etc/polymeter/node1.key'
finds "wrong key owner" node1 'problem .*node1.key'
on node1 root 'chown polymeter: /etc/polymeter/node1.key'
sound node1

on head root 'systemctl stop polymeter-collector'
finds "no collector, on the node" node1 'problem .*no collector answers'
finds "no collector, on the login node" login 'problem .*collector'
finds "no collector, on its machine" head 'problem .*collector'
on head root 'systemctl start polymeter-collector'
sound node1

on node1 root 'systemctl stop polymeter-agent'
finds "no agent" node1 'problem .*agent'
on node1 root 'systemctl start polymeter-agent'
sound node1

on head root 'fallocate -l 260M /var/lib/polymeter/other || true'
finds "full disk" head 'problem .*disk of the store is full'
on head root 'rm /var/lib/polymeter/other'
sound head

on node1 root "sed -i.sound '/^Prolog=/d' /etc/slurm/slurm.conf"
finds "missing scripts" node1 'problem .*no Prolog'
on node1 root 'mv /etc/slurm/slurm.conf.sound /etc/slurm/slurm.conf'
sound node1
