#!/bin/bash
# The part of run.sh within the new Debian tree.
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
job=package$$
fail() { echo "FAILED: $*"; tail -n 50 /tmp/*.log 2>/dev/null || true; exit 1; }
wait_for() { # SECONDS COMMAND...
    local seconds=$1
    shift
    until "$@" >/dev/null 2>&1; do
        seconds=$((seconds - 1))
        [ $seconds -gt 0 ] || fail "timeout while waiting for: $*"
        sleep 1
    done
}
expect() { # DESCRIPTION EXPECTED ACTUAL
    [ "$2" = "$3" ] || fail "$1: expected \`$2\`, found \`$3\`"
}
install_packages() { apt-get install -y -qq --no-install-recommends "$1"/polymeter*.deb >/tmp/apt.log 2>&1 || fail "cannot install"; }

apt-get update -qq >/tmp/apt.log 2>&1 || fail "no package lists"

apt-get install -y -qq --no-install-recommends libzmq5 adduser >/tmp/apt.log 2>&1 || fail "cannot install"

echo "installing"
install_packages /root/first
expect "running services" "" "$(grep -ls '^polymeter' /proc/[0-9]*/comm || true)"
expect "enabled services" "" "$(find /etc/systemd -name 'polymeter*' 2>/dev/null)"
id polymeter >/dev/null || fail "no user"
expect "owner of the state directory" polymeter "$(stat -c %U /var/lib/polymeter)"
for program in polymeter polymeter-agent polymeter-collector; do
    "$program" --version >/dev/null || fail "$program does not start"
done
# The default configuration is valid. The collector's store is a server, which is not here.
polymeter-agent --check --user polymeter 2>/tmp/check.log || fail "the default configuration of the agent has faults"
polymeter-collector --check 2>/tmp/check.log || fail "the default configuration of the collector has faults"
# Programs find the library for regions.
ldconfig -p | grep -q libpolymeter_regions.so.1 || fail "no library for regions"
[ -e /usr/include/polymeter/polymeter.h ] || fail "no header for regions"
# A minimal tree leaves pages out when it unpacks.
dpkg -L polymeter | grep -q '/usr/share/man/man1/polymeter-report.1.gz' || fail "no manual page"
bash -c '. /usr/share/bash-completion/completions/polymeter' || fail "the completion is no script of bash"

start() {
    install -d -o polymeter -g polymeter /run/polymeter
    setpriv --reuid polymeter --regid polymeter --clear-groups polymeter-collector 2>>/tmp/collector.log &
    collector=$!
    setpriv --reuid polymeter --regid polymeter --clear-groups polymeter-agent 2>>/tmp/agent.log &
    agent=$!
    wait_for 20 polymeter status
}
stop() {
    kill "$agent" && wait "$agent" || fail "the agent"
    kill "$collector" && wait "$collector" || fail "the collector"
}
echo "setting up, and examining the result"
polymeter setup collector --keys --yes >/tmp/setup.log 2>&1 || fail "setup collector"
polymeter setup node --keys --name package --yes >>/tmp/setup.log 2>&1 || fail "setup node"
polymeter setup node --keys --name package --yes | grep -q '^nothing to do' || fail "the second setup finds something to do"
expect "owner and mode of a key" "polymeter 600" "$(stat -c '%U %a' /etc/polymeter/package.key)"
cp /etc/polymeter/package.pub /etc/polymeter/agents.d/
start
connected() { polymeter status --json | grep -q '"connected": *true'; }
wait_for 20 connected
# The agent has no capabilities here, and the disk may be small: warnings are no problems.
polymeter doctor >/tmp/doctor.log 2>&1 || fail "the doctor finds a problem"
chown root: /etc/polymeter/package.key
polymeter doctor >/tmp/doctor.log 2>&1 && fail "the doctor does not find the wrong owner of a key"
grep -q 'chown polymeter: /etc/polymeter/package.key' /tmp/doctor.log || fail "the doctor names no remedy"
stop
rm -f /etc/polymeter/*.key /etc/polymeter/*.pub /etc/polymeter/agents.d/*
rm -rf /var/lib/polymeter/*

echo "sampling a job with both daemons as their user"
cat >/etc/polymeter/collector.toml <<'C'
# The administrator's own.
listen = "tcp://127.0.0.1:7717"
store = "sqlite:/var/lib/polymeter/store.db"
C
cat >/etc/polymeter/agent.toml <<'C'
# The administrator's own.
jobs = ["polymeter_{job}"]
flush_interval = "200ms"
C
for daemon in agent collector; do
    polymeter-$daemon --check --user polymeter 2>/tmp/check.log || fail "the configuration of the $daemon has faults"
done
start
entrances=""
for root in $(awk '$3 == "cgroup2" || $3 == "cgroup" && $4 ~ /(^|,)(memory|cpuacct|pids)(,|$)/ { print $2 }' /proc/mounts); do
    mkdir "$root/polymeter_$job" 2>/dev/null && entrances="$entrances $root/polymeter_$job"
done
[ -n "$entrances" ] || fail "cannot create a cgroup"
/usr/libexec/polymeter/slurm/prolog # Without a job it must not fail: slurmd would drain the node.
polymeter job start --job "$job" --user root --name packaged --no-agent --strict
bash -c 'for group in '"$entrances"'; do echo $$ >$group/cgroup.procs; done
    end=$((SECONDS + 3)); while [ $SECONDS -lt $end ]; do :; done'
polymeter job end --job "$job" --exit-code 0
for group in $entrances; do wait_for 10 rmdir "$group"; done
stop
report() { polymeter report --store sqlite:/var/lib/polymeter/store.db --json "$job" 2>/tmp/report.log || fail "no report"; }
report >/tmp/before.json
grep -q '"packaged"' /tmp/before.json || fail "the report does not name the job"

echo "upgrading"
install_packages /root/second
expect "version" "$(dpkg-deb -f /root/second/polymeter_*.deb Version)" "$(dpkg-query -W -f '${Version}' polymeter-collector)"
for daemon in agent collector; do
    expect "the configuration of the $daemon" "# The administrator's own." "$(head -1 /etc/polymeter/$daemon.toml)"
done
report >/tmp/after.json
cmp /tmp/before.json /tmp/after.json || fail "the report of the job has changed"
start
stop

echo "removing and purging"
apt-get remove -y -qq polymeter polymeter-agent polymeter-collector >/tmp/apt.log 2>&1 || fail "cannot remove"
[ -e /etc/polymeter/agent.toml ] || fail "remove took the configuration"
[ ! -e /usr/bin/polymeter-agent ] || fail "remove left the agent"
apt-get purge -y -qq polymeter polymeter-agent polymeter-collector >/tmp/apt.log 2>&1 || fail "cannot purge"
grep -q '/var/lib/polymeter has data' /tmp/apt.log || fail "purge does not tell of the data"
[ -e /var/lib/polymeter/store.db ] || fail "purge took the store"
expect "files left in /etc" "" "$(find /etc -path '*polymeter*' -type f 2>/dev/null)"
echo "packages: installed, run, upgraded, removed and purged"
