#!/bin/bash
# The part of run.sh within the Debian tree: sets up OAR as its documentation says, and the scripts of deploy/oar.
set -u
export LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin
fail() {
    echo "FAILED: $*"
    tail -n 60 /var/log/oar.log /tmp/*.log
    su oar -s /bin/sh -c 'oarstat -f; oarnodes -s'
    exit 1
}
wait_for() { # SECONDS COMMAND...
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || fail "timeout while waiting for: $*"
        sleep 0.5
    done
}
setting() { # NAME VALUE: in oar.conf
    sed -i "/^#\?$1=/d" /etc/oar/oar.conf
    echo "$1=\"$2\"" >>/etc/oar/oar.conf
}
as() { # USER COMMAND
    su - "$1" -s /bin/bash -c "$2"
}
submit() { # ARGUMENTS: returns the ids of the jobs
    as alice "oarsub $*" | sed -n 's/^OAR_JOB_ID=//p'
}
state() { oarstat -s -j "$1" | sed -n "s/^$1: *//p"; }
is_in_state() { [ "$(state "$1")" = "$2" ]; }
has_ended() { [[ $(state "$1") =~ Terminated|Error ]]; }

ip link set lo up
# Resolvers ignore names of a machine whose only address is the loopback address.
ip address add 192.0.2.1/32 dev lo
printf '127.0.0.1 localhost node\n' >/etc/hosts
echo node >/etc/hostname
chmod 1777 /out /tmp
for user in alice bob; do useradd --create-home --shell /bin/bash $user; done
mkdir -p /run/polymeter /run/sshd /run/lock
install -d -o postgres -g postgres -m 2775 /run/postgresql

# The database, the server and the node.
setting DB_BASE_PASSWD oar
setting DB_BASE_PASSWD_RO oar_ro
for name in SERVER_HOSTNAME DEPLOY_HOSTNAME COSYSTEM_HOSTNAME; do setting $name node; done
setting LOG_LEVEL 3
setting SCHEDULER_JOB_SECURITY_TIME 1
setting SCHEDULER_MIN_TIME_BETWEEN_2_CALLS 1
setting FINAUD_FREQUENCY 0
sed -i '/^PINGCHECKER_SENTINELLE_SCRIPT_COMMAND=/d' /etc/oar/oar.conf
setting PINGCHECKER_GENERIC_COMMAND /bin/true
setting JOB_RESOURCE_MANAGER_PROPERTY_DB_FIELD cpuset
setting JOB_RESOURCE_MANAGER_FILE /etc/oar/job_resource_manager_cgroups.pl
setting CPUSET_PATH /oar
sed -i 's/^my $Enable_mem_cg = "NO";/my $Enable_mem_cg = "YES";/' /etc/oar/job_resource_manager_cgroups.pl
for script in prologue epilogue; do
    setting "${script^^}_EXEC_FILE" /etc/oar/polymeter/$script
    setting "SERVER_${script^^}_EXEC_FILE" /etc/oar/polymeter/server_$script
done
printf '%s\n' 'oar ALL=(root) NOPASSWD: /usr/bin/polymeter job start *, /usr/bin/polymeter job end *' \
    'oar ALL=(ALL) NOPASSWD: /usr/bin/polymeter set *' >/etc/sudoers.d/polymeter
chmod 440 /etc/sudoers.d/polymeter

pg_ctlcluster 15 main start || fail "PostgreSQL"
oar-database --create --db-is-local >/tmp/database.log 2>&1 || fail "oar-database"
/etc/init.d/oar-node start >/tmp/node.log 2>&1 || fail "oar-node"
/etc/init.d/oar-server start >/tmp/server.log 2>&1 || fail "oar-server"
for cpu in 0 1 0 1 0 1 0 1; do
    oarnodesetting -a -h node -p cpuset=$cpu -p deploy=YES >>/tmp/node.log 2>&1 || fail "oarnodesetting"
done
# The rule that checks types: docs/how-to/oar.md.
su postgres -c "psql -q -d oar" <<'END' || fail "the admission rule"
UPDATE admission_rules SET rule = replace(rule, 'qr/^state=permissive$/,', 'qr/^state=permissive$/, qr/^polymeter=[-\w.,=*? ]+$/,');
END
wait_for 30 bash -c "oarnodes -s | grep -q Alive"
echo "OAR $(dpkg-query -W -f "\${Version}" oar-server), ready after $SECONDS s"

cat >/etc/polymeter/agent.toml <<'END'
collector = "ipc:///run/collector"
flush_interval = "200ms"
cluster = "grid"
[baseline]
"cpu.usage" = "1s"
"cpu.user" = "1d"
"memory.peak" = "1s"
END
cat >/etc/polymeter/collector.toml <<'END'
listen = "ipc:///run/collector"
store = "sqlite:/out/store.db"
control_socket = "/run/polymeter/collector.sock"
scheduler_user = "oar"
END
echo 'collector = "/run/polymeter/collector.sock"' >/etc/polymeter/client.toml
polymeter-collector --config /etc/polymeter/collector.toml 2>/tmp/collector.log &
collector=$!
wait_for 10 test -S /run/polymeter/collector.sock

completed=$(submit -n solver -l resource_id=1,walltime=0:10:0 "'/job.sh 0'")
failed=$(submit -l resource_id=1,walltime=0:10:0 "'/job.sh 3'")
read -r -d '' array second < <(submit --array 2 -n sweep -l resource_id=1,walltime=0:10:0 "'/job.sh 0'")
limited=$(submit -l resource_id=1,walltime=0:0:8 "'sleep 600'")
deleted=$(submit -l resource_id=1,walltime=0:10:0 "'sleep 600'")
requested=$(submit -t "'polymeter=cpu.user=100ms for 1h'" -l resource_id=1,walltime=0:10:0 "'while [ ! -e /out/granted ]; do sleep 0.2; done'")
for id in "$completed" "$failed" "$array" "$second" "$limited" "$deleted" "$requested"; do
    [ -n "$id" ] || fail "a job was refused"
done

wait_for 60 is_in_state "$deleted" Running
wait_for 20 bash -c "polymeter jobs | grep -q '^$deleted '"
as alice "oardel $deleted" >/dev/null || fail "oardel"
is_granted() { as alice "polymeter plan --job $requested" | grep 'cpu.user.*100ms.*alice\|cpu.user.*100ms.*lease'; }
wait_for 60 is_granted
is_granted >/out/plan
touch /out/granted
for id in $completed $failed $array $second $limited $deleted $requested; do
    wait_for 90 has_ended "$id"
done
echo "jobs on the node ended after $SECONDS s"

# Jobs of these types run on a machine that oar.conf names, without cgroups.
cosystem=$(submit -t cosystem -l resource_id=1,walltime=0:10:0 "'touch /out/cosystem; sleep 2'")
wait_for 60 has_ended "$cosystem"
deploy=$(submit -t deploy -l nodes=1,walltime=0:10:0 "'touch /out/deploy; sleep 2'")
wait_for 60 has_ended "$deploy"
echo "jobs without cgroups ended after $SECONDS s"

# The id of the array is also that of its first job: `report` shows the whole array.
reports_state() { as alice "polymeter report --json $1" >"/out/report.${1%_1}" && grep -q '"state": "' "/out/report.${1%_1}"; }
for id in $completed $failed ${array}_1 $second $limited $deleted $requested $cosystem $deploy; do
    wait_for 60 reports_state "$id"
done
for id in $completed $failed $array $second $limited $deleted $requested $cosystem $deploy; do
    oarstat -f -j "$id" >"/out/oarstat.$id"
done
as bob "polymeter report $completed" >/out/refused 2>&1 && fail "bob reads the job of alice"
printf '%s\n' "completed $completed" "failed $failed" "first $array" "second $second" "limited $limited" "deleted $deleted" \
    "requested $requested" "cosystem $cosystem" "deploy $deploy" >/out/ids
echo "all reports read after $SECONDS s"
# The prologue started the agent, which ends after the last job.
wait_for 60 bash -c '! pidof polymeter-agent'
kill $collector
wait $collector || fail "the collector ended badly"
! find /sys/fs/cgroup/*/oar -mindepth 1 -type d | grep . || fail "OAR left cgroups of jobs"
cp /var/log/oar.log /tmp/*.log /out/
