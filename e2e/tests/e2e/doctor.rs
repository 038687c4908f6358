//! `polymeter doctor` on a machine that `polymeter setup` has configured: nothing is found there, then one
//! fault at a time.

use std::path::Path;

use polymeter_e2e::daemons::Daemon;
use polymeter_e2e::installed::{InstalledMachine, serious};
use polymeter_e2e::{Need, now_us, require, tests, wait_until};
use serde_json::Value;

tests![
    doctor_finds_faults_of_keys_and_nothing_else,
    doctor_finds_daemons_that_do_not_run,
    doctor_finds_faults_of_the_machine,
    doctor_finds_energy_counters_that_the_agent_may_not_read,
    doctor_finds_missing_scripts_of_schedulers,
    doctor_compares_clock_and_version_with_the_collector,
    doctor_finds_a_configuration_with_faults,
    doctor_examines_what_an_ordinary_user_may_see,
];

const NEEDS: [Need; 5] = [Need::Root, Need::Mounts, Need::Network, Need::Cgroup1, Need::Perf];

/// Capabilities of the packaged unit.
const CAPABILITIES: &str = "+perfmon,+sys_nice,+sys_ptrace";

struct Cluster {
    collector: Option<Daemon>,
    agent: Option<Daemon>,
    /// Dropped last: the daemons' logs are in its directory.
    machine: InstalledMachine,
}

impl Cluster {
    fn new() -> Self {
        require(&NEEDS);
        let machine = InstalledMachine::new();
        for words in [
            &["setup", "collector", "--keys", "--yes"][..],
            &["setup", "node", "--keys", "--name", "n1", "--no-spool", "--yes"],
        ] {
            let output = machine.polymeter(words);
            assert_eq!(output.status.code(), Some(0), "{output:?}");
        }
        machine.shell("cp /etc/polymeter/n1.pub /etc/polymeter/agents.d/");
        let mut cluster = Self { machine, collector: None, agent: None };
        cluster.start_collector();
        cluster.start_agent(CAPABILITIES);
        cluster.machine.wait_until_connected(true);
        cluster.finds(&[]);
        cluster
    }

    fn start_collector(&mut self) {
        let daemon = self.machine.start("polymeter-collector", "");
        wait_until("the collector listens", || daemon.log().contains("listening for users"));
        self.collector = Some(daemon);
    }

    fn start_agent(&mut self, capabilities: &str) {
        let daemon = self.machine.start("polymeter-agent", capabilities);
        wait_until("the agent samples", || daemon.log().contains("sampling; sending to"));
        self.agent = Some(daemon);
    }

    /// Checks that the doctor finds exactly these problems and warnings. Returns the report.
    fn finds(&self, expected: &[&str]) -> Value {
        self.finds_as(&[], expected)
    }

    fn finds_as(&self, arguments: &[&str], expected: &[&str]) -> Value {
        let (report, found) = self.machine.doctor(arguments);
        assert_eq!(found, expected, "{report:#}");
        report
    }

    /// Checks that a script causes these findings, and that another one removes them.
    fn fault(&self, make: &str, expected: &[&str], mend: &str) -> Value {
        self.machine.shell(make);
        let report = self.finds(expected);
        self.machine.shell(mend);
        self.finds(&[]);
        report
    }
}

fn remedies(report: &Value) -> Vec<&str> {
    report["findings"].as_array().unwrap().iter().filter_map(|finding| finding["remedy"].as_str()).collect()
}

fn doctor_finds_faults_of_keys_and_nothing_else() {
    let cluster = Cluster::new();
    let key = "/etc/polymeter/n1.key";
    let report =
        cluster.fault(&format!("chown root: {key}"), &["problem keys"], &format!("chown polymeter: {key}"));
    assert_eq!(remedies(&report), [format!("chown polymeter: {key} && chmod 600 {key}")]);
    cluster.fault(&format!("chmod 640 {key}"), &["problem keys"], &format!("chmod 600 {key}"));
    cluster.fault(&format!("chown 7 {key}"), &["problem keys"], &format!("chown polymeter: {key}"));
    cluster.fault(&format!("mv {key} /etc/away"), &["problem keys"], &format!("mv /etc/away {key}"));
    let own = "/etc/polymeter/collector.key";
    cluster.fault(&format!("chown root: {own}"), &["problem keys"], &format!("chown polymeter: {own}"));
    let public = "/etc/polymeter/agents.d/n1.pub";
    cluster.fault(&format!("chmod 666 {public}"), &["problem keys"], &format!("chmod 644 {public}"));
    cluster.fault(
        &format!("echo nonsense >{public}.new; mv {public} /etc/away; mv {public}.new {public}"),
        &["problem keys"],
        &format!("mv /etc/away {public}"),
    );
    // Each remedy is a command that mends its fault.
    cluster.machine.shell(&format!("chown root: {key}; chmod 777 /etc/polymeter/agents.d; chmod 644 {own}"));
    let report = cluster.finds(&["problem keys"]);
    assert_eq!(remedies(&report).len(), 3, "{report:#}");
    remedies(&report).iter().for_each(|remedy| drop(cluster.machine.shell(remedy)));
    cluster.finds(&[]);
}

fn doctor_finds_daemons_that_do_not_run() {
    let mut cluster = Cluster::new();
    cluster.agent.take().unwrap().terminate();
    let report = cluster.finds(&["problem agent"]);
    assert_eq!(remedies(&report), ["systemctl enable --now polymeter-agent"]);
    // Without the agent the connection is tested with its keys.
    assert!(connection_of_node(&report).ends_with("accepts this node's agent, encrypted"), "{report:#}");
    cluster.machine.shell("mv /etc/polymeter/agents.d/n1.pub /etc/away");
    let report = cluster.finds(&["problem agent", "problem connection"]);
    assert!(connection_of_node(&report).contains("refuses this agent's key"), "{report:#}");
    cluster.machine.shell("mv /etc/away /etc/polymeter/agents.d/n1.pub");

    cluster.start_agent(CAPABILITIES);
    cluster.machine.wait_until_connected(true);
    cluster.finds(&[]);
    cluster.collector.take().unwrap().terminate();
    cluster.machine.wait_until_connected(false);
    let report = cluster.finds(&["problem connection"]);
    assert_eq!(report["counts"]["problem"], 3, "the node's connection, agents', users': {report:#}");
    cluster.start_collector();
    cluster.machine.wait_until_connected(true);
    cluster.finds(&[]);
}

fn connection_of_node(report: &Value) -> String {
    let findings = report["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["check"] == "connection" && finding["role"] == "node").unwrap()
            ["text"]
            .as_str()
            .unwrap()
            .to_owned()
}

fn doctor_finds_faults_of_the_machine() {
    let mut cluster = Cluster::new();
    // A disk of 60 MiB that contains the store and the spool's place.
    let shrink = "size=$(du -sk /var/lib | cut -f1); mount -o remount,size=$((size + 40960))k /var/lib";
    cluster.fault(shrink, &["problem disk"], "mount -o remount,size=4g /var/lib");

    cluster.fault(
        "umount /sys/fs/cgroup/memory",
        &["problem cgroups"],
        "mount -t cgroup -o memory cgroup /sys/fs/cgroup/memory",
    );

    // An agent without capabilities, on a kernel that permits perf events to nobody else, and on one that
    // permits them to all.
    cluster.agent.take().unwrap().terminate();
    cluster
        .machine
        .shell("echo 2 >/etc/paranoid; mount --bind /etc/paranoid /proc/sys/kernel/perf_event_paranoid");
    cluster.start_agent("");
    cluster.machine.wait_until_connected(true);
    cluster.finds(&["warning perf", "warning realtime"]);
    cluster.machine.shell("echo 0 >/etc/paranoid");
    cluster.finds(&["warning realtime"]);
    cluster.machine.shell("umount /proc/sys/kernel/perf_event_paranoid");
}

fn doctor_finds_energy_counters_that_the_agent_may_not_read() {
    let mut cluster = Cluster::new();
    cluster.agent.take().unwrap().terminate();
    cluster.machine.shell(
        "zone=/sys/class/powercap/intel-rapl:0
         mkdir -p $zone
         echo package-0 >$zone/name
         echo 262143328850 >$zone/max_energy_range_uj
         echo 123456789 >$zone/energy_uj
         chmod 400 $zone/energy_uj",
    );
    cluster.start_agent(CAPABILITIES);
    cluster.machine.wait_until_connected(true);
    let report = cluster.finds(&["warning energy"]);
    assert!(remedies(&report)[0].contains("root-files.conf"), "{report:#}");
    cluster.machine.shell("chmod 444 /sys/class/powercap/intel-rapl:0/energy_uj");
    cluster.agent.take().unwrap().terminate();
    cluster.start_agent(CAPABILITIES);
    cluster.machine.wait_until_connected(true);
    cluster.finds(&[]);
}

fn doctor_finds_missing_scripts_of_schedulers() {
    let cluster = Cluster::new();
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    let scripts = scripts.display();
    let conf = "SlurmctldHost=elsewhere\\nProctrackType=proctrack/cgroup\\nPrologFlags=Alloc,Contain\\n";
    let calls = "Prolog=/etc/slurm/prolog.d/*\\nEpilog=/etc/slurm/epilog.d/*\\n";
    let with = |text: &str| format!("mkdir -p /etc/slurm; printf '{text}' >/etc/slurm/slurm.conf");
    cluster.machine.shell(&with(conf));
    let report = cluster.finds(&["problem slurm"]);
    assert_eq!(report["counts"]["problem"], 2, "prolog and epilog: {report:#}");
    cluster.machine.shell(&with(&format!("{conf}{calls}")));
    cluster.finds(&["problem slurm"]);
    let installed = format!(
        "install -D -m 755 {scripts}/slurm/prolog /etc/slurm/prolog.d/50-polymeter
         install -D -m 755 {scripts}/slurm/epilog /etc/slurm/epilog.d/50-polymeter"
    );
    cluster.machine.shell(&installed);
    cluster.finds(&[]);
    cluster.fault(
        "chmod 644 /etc/slurm/prolog.d/50-polymeter",
        &["problem slurm"],
        "chmod 755 /etc/slurm/prolog.d/50-polymeter",
    );
    let other = with(&format!("{}{calls}", conf.replace("proctrack/cgroup", "proctrack/pgid")));
    cluster.fault(&other, &["problem slurm"], "rm -r /etc/slurm");

    cluster.fault(
        "mkdir /etc/oar; printf 'PROLOGUE_EXEC_FILE=\"/etc/oar/none\"\\n' >/etc/oar/oar.conf",
        &["problem oar", "warning oar"],
        &format!(
            "install -m 755 {scripts}/oar/prologue {scripts}/oar/epilogue /etc/oar/
             printf 'PROLOGUE_EXEC_FILE=\"/etc/oar/prologue\"\\nEPILOGUE_EXEC_FILE=\"/etc/oar/epilogue\"\\n' >/etc/oar/oar.conf"
        ),
    );
}

fn has_level(report: &Value, check: &str, level: &str) -> bool {
    let findings = report["findings"].as_array().unwrap();
    findings.iter().any(|finding| finding["check"] == check && finding["level"] == level)
}

fn doctor_compares_clock_and_version_with_the_collector() {
    let mut cluster = Cluster::new();
    // The real collector, whose users need MUNGE: its greeting does not.
    cluster.machine.shell(
        "sed -i -e 's/^auth = .*/auth = \"munge\"/' -e '1i control_listen = \"tcp://127.0.0.1:7719\"' \
             -e '1i unmunge_path = \"/bin/true\"' /etc/polymeter/collector.toml
         printf '[api]\\nlisten = \"/run/polymeter/api.sock\"\\n' >>/etc/polymeter/collector.toml
         printf 'collector = \"tcp://127.0.0.1:7719\"\\n' >/etc/polymeter/client.toml",
    );
    cluster.collector.take().unwrap().terminate();
    cluster.start_collector();
    let (report, found) = cluster.machine.doctor(&["--role", "login"]);
    assert_eq!(found, ["problem munge"], "there is no munged: {report:#}");
    for check in ["clock", "versions", "connection"] {
        assert!(has_level(&report, check, "ok"), "{check}: {report:#}");
    }

    // On its machine the collector tells the clocks of agents.
    wait_until("the clock of the agent is measured", || {
        let (report, _) = cluster.machine.doctor(&["--role", "collector"]);
        report.to_string().contains("the clocks of 1 agent differ from the collector's by less than 0.1 s")
    });

    // A collector with another version, whose clock is 5 s behind.
    cluster.machine.greet_at("127.0.0.1:7720", || {
        let now_us = now_us() - 5_000_000;
        format!("{{\"polymeter_control\":1,\"nonce\":\"0\",\"version\":\"99.0.0\",\"now_us\":{now_us}}}\n")
    });
    cluster.machine.shell("printf 'collector = \"tcp://127.0.0.1:7720\"\\n' >/etc/polymeter/client.toml");
    let (report, found) = cluster.machine.doctor(&["--role", "login"]);
    assert_eq!(found, ["problem munge", "problem clock", "warning versions"], "{report:#}");
    let clock =
        report["findings"].as_array().unwrap().iter().find(|finding| finding["check"] == "clock").unwrap();
    assert!(clock["text"].as_str().unwrap().contains("s ahead of that of the collector"), "{clock}");
    // A login node without a collector, and one whose collector is away.
    cluster.machine.shell("printf 'collector = \"tcp://127.0.0.1:1\"\\n' >/etc/polymeter/client.toml");
    cluster.finds_as(&["--role", "login"], &["problem connection", "problem munge"]);
    cluster.collector.take().unwrap().terminate();
    cluster.machine.shell("rm /etc/polymeter/client.toml; rm -f /run/polymeter/collector.sock");
    cluster.finds_as(&["--role", "login"], &["problem connection"]);
}

fn doctor_finds_a_configuration_with_faults() {
    let cluster = Cluster::new();
    let copy = "cp /etc/polymeter/agent.toml /etc/kept";
    let report = cluster.fault(
        &format!("{copy}; sed -i '1i colector = 7' /etc/polymeter/agent.toml"),
        &["problem configuration"],
        "cp /etc/kept /etc/polymeter/agent.toml",
    );
    assert!(remedies(&report)[0].starts_with("correct /etc/polymeter/agent.toml:1"), "{report:#}");
    // A configuration that the service's user cannot read, and the remedy.
    cluster.machine.shell("chmod 600 /etc/polymeter/agent.toml");
    let report = cluster.finds(&["problem configuration"]);
    cluster.machine.shell(remedies(&report)[0]);
    cluster.finds(&[]);
    let output = cluster.machine.polymeter(&["doctor", "--role", "cluster"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

fn doctor_examines_what_an_ordinary_user_may_see() {
    let cluster = Cluster::new();
    let before = cluster
        .machine
        .shell("find /etc/polymeter /var/lib/polymeter /run/polymeter -printf '%p %U %m %y\\n' | sort");
    let output = cluster.machine.polymeter_as_nobody(&["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(serious(&report), [""; 0], "{report:#}");
    for check in ["keys", "database"] {
        assert!(has_level(&report, check, "not_checked"), "{check}: {report:#}");
    }
    let text = cluster.machine.polymeter_as_nobody(&["doctor"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("run this as root") && text.contains("0 problems, 0 warnings, "), "{text}");
    // Setup refuses, and changes nothing.
    let refused =
        cluster.machine.polymeter_as_nobody(&["setup", "login", "--collector", "tcp://c:7718", "--yes"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("run this as root"), "{refused:?}");
    let after = cluster
        .machine
        .shell("find /etc/polymeter /var/lib/polymeter /run/polymeter -printf '%p %U %m %y\\n' | sort");
    assert_eq!(before, after, "nothing was changed");
}
