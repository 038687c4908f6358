//! Tests of the command at the end of each job, in each kind of store.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use polymeter_analysis::advice::Advice;
use polymeter_analysis::gather::gather;
use polymeter_analysis::jobstats;
use polymeter_collector::job_end::JobEndConfig;
use polymeter_collector::{Collector, CollectorConfig};
use polymeter_proto::ledger::Event;
use polymeter_proto::series::JobHandle;
use polymeter_store::reader::Read;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::support::agent::{Agent, job, shape, values};
use crate::support::openmetrics::scrape;
use crate::support::program::RunningCollector;
use crate::support::{Kind, TestEnvironment, now_us, wait_until};

scenarios! {
    the_command_gets_the_report_of_each_job_once,
    a_job_with_the_same_id_has_a_command_of_its_own,
    a_thousand_ends_at_once_each_have_a_command,
    more_ends_than_the_queue_permits_are_counted,
    faulty_commands_are_counted_and_delay_nothing,
    a_command_that_was_interrupted_runs_again,
    a_job_that_resumes_waits_for_its_next_end,
    a_restart_of_the_database_repeats_no_command,
    two_collectors_run_a_command_once,
}

struct Command {
    directory: TempDir,
}

impl Command {
    /// Appends the job's id to a log after it ran `script`, whose standard input is the report.
    fn new(script: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let command = Self { directory };
        let text = format!(
            "#!/bin/sh\nd='{}'\n{script}\necho \"$POLYMETER_JOB_ID\" >>\"$d/log\"\n",
            command.directory.path().display()
        );
        fs::write(command.program(), text).unwrap();
        fs::set_permissions(command.program(), PermissionsExt::from_mode(0o755)).unwrap();
        command
    }

    fn program(&self) -> PathBuf {
        self.path("command")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn lines(&self, name: &str) -> Vec<String> {
        fs::read_to_string(self.path(name)).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// Jobs whose command has ended, sorted.
    fn ended(&self) -> Vec<String> {
        let mut ids = self.lines("log");
        ids.sort();
        ids
    }

    fn config(&self, environment: &TestEnvironment) -> CollectorConfig {
        let job_end = JobEndConfig {
            delay: Duration::from_secs(1),
            advice: self.path("advice.d"),
            ..JobEndConfig::new(self.program())
        };
        let metrics_listen = Some("127.0.0.1:0".parse().unwrap());
        CollectorConfig { job_end: Some(job_end), metrics_listen, ..environment.config() }
    }

    fn collector(&self, environment: &TestEnvironment) -> Collector {
        Collector::start(&self.config(environment), &environment.context).unwrap()
    }
}

/// Jobs with handles that follow each other do not overlap.
fn begin_us(handle: u32) -> i64 {
    now_us() - 60_000_000 + i64::from(handle % 6) * 10_000_000
}

/// Gives the jobs handles from `handle` on.
fn run_jobs(agent: &mut Agent, handle: u32, ids: &[String]) {
    for (handle, id) in (handle..).zip(ids) {
        let at_us = begin_us(handle);
        let job = job(handle, id, at_us);
        let shape = shape(handle, Some(&job));
        let rows: Vec<_> = (0..3).map(|second| (at_us + second * 1_000_000, values(second).0)).collect();
        let rows: Vec<_> = rows.iter().map(|(at_us, values)| (&shape, *at_us, values.as_slice())).collect();
        let ended = Event::JobEnded { job: JobHandle(handle), at_us: at_us + 3_000_000 };
        agent.frame(&rows, &[], &[ended]);
    }
    agent.send_from(0);
    agent.wait_until_acknowledged();
}

fn ids(count: usize) -> Vec<String> {
    let mut ids: Vec<String> = (0..count).map(|number| (1000 + number).to_string()).collect();
    ids.sort();
    ids
}

fn is_queue_empty(environment: &TestEnvironment) -> bool {
    environment.number("SELECT count(*) FROM job_end") == 0
}

fn wait_until_empty(environment: &TestEnvironment) {
    wait_until("the queue is empty", || is_queue_empty(environment));
}

fn the_command_gets_the_report_of_each_job_once(environment: &mut TestEnvironment) {
    let command = Command::new(
        "cat >\"$d/$POLYMETER_JOB_ID.json\"; /usr/bin/env -u PWD -u SHLVL -u OLDPWD -u _ | sort >\"$d/$POLYMETER_JOB_ID.env\"",
    );
    let collector = command.collector(environment);
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    let ids = ids(3);
    run_jobs(&mut agent, 1, &ids);
    wait_until("all commands have ended", || command.ended().len() >= ids.len());
    wait_until_empty(environment);
    assert_eq!(command.ended(), ids);
    let page = scrape(&collector);
    assert_eq!(page.value("job_end_commands_total{result=\"succeeded\"}"), 3.0);
    assert_eq!(page.value("job_end_dropped_total"), 0.0);
    collector.stop().unwrap();
    assert_eq!(command.ended(), ids, "a stop starts no command");
    for job in environment.jobs() {
        let mut reader = environment.reader();
        let mut report = gather(&mut reader as &mut dyn Read, &job, None).unwrap();
        Advice::built_in().advise(&mut report);
        let json = fs::read_to_string(command.path(&format!("{}.json", job.job_id))).unwrap();
        // serde_json does not read every double exactly.
        let expected = serde_json::to_string_pretty(&report).unwrap() + "\n";
        assert!(json == expected, "{json} is not {expected}");
        let found: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((found["schema_version"].as_u64(), found["job"].as_str()), (Some(1), Some(&*job.job_id)));
        assert!(found["ended"].as_bool().unwrap() && !found["series"].as_array().unwrap().is_empty());
        let variables = command.lines(&format!("{}.env", job.job_id));
        let expected = [
            "LC_ALL=C.UTF-8".to_owned(),
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
            format!("POLYMETER_JOBSTATS={}", jobstats::summary(&report).unwrap()),
            "POLYMETER_JOB_CLUSTER=lab".to_owned(),
            format!("POLYMETER_JOB_ID={}", job.job_id),
            "POLYMETER_JOB_OWNER=ada".to_owned(),
            "POLYMETER_JOB_OWNER_UID=1000".to_owned(),
        ];
        assert_eq!(variables, expected);
    }
}

fn a_job_with_the_same_id_has_a_command_of_its_own(environment: &mut TestEnvironment) {
    let command = Command::new("cat >\"$d/$$.json\"");
    let collector = command.collector(environment);
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    for handle in [1, 2] {
        run_jobs(&mut agent, handle, &["7".to_owned()]);
        wait_until("the command has ended", || command.ended().len() >= handle as usize);
    }
    wait_until_empty(environment);
    collector.stop().unwrap();
    assert_eq!((command.ended(), environment.jobs().len()), (vec!["7".to_owned(); 2], 2));
}

fn a_thousand_ends_at_once_each_have_a_command(environment: &mut TestEnvironment) {
    let count = if environment.kind == Kind::Sqlite { 1000 } else { 100 };
    let command = Command::new("echo begin >>\"$d/running\"; echo end >>\"$d/running\"");
    let mut config = command.config(environment);
    config.job_end.as_mut().unwrap().concurrent = 4;
    let collector = Collector::start(&config, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    let ids = ids(count);
    run_jobs(&mut agent, 1, &ids);
    for part in 1..=10 {
        wait_until("the commands continue", || command.ended().len() >= count * part / 10);
    }
    wait_until_empty(environment);
    collector.stop().unwrap();
    assert_eq!(command.ended(), ids);
    let (mut running, mut most) = (0_i64, 0);
    for line in command.lines("running") {
        running += if line == "begin" { 1 } else { -1 };
        most = most.max(running);
    }
    assert!(running == 0 && most <= 4, "{running} {most}");
}

fn more_ends_than_the_queue_permits_are_counted(environment: &mut TestEnvironment) {
    let command = Command::new("cat >/dev/null");
    let mut config = command.config(environment);
    config.job_end.as_mut().unwrap().queue = 5;
    let collector = Collector::start(&config, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    run_jobs(&mut agent, 1, &ids(50));
    wait_until("the queue is empty", || is_queue_empty(environment) && !command.ended().is_empty());
    let page = scrape(&collector);
    let (ran, dropped) =
        (page.value("job_end_commands_total{result=\"succeeded\"}"), page.value("job_end_dropped_total"));
    assert!(ran + dropped == 50.0 && dropped > 0.0 && ran > 0.0, "{ran} {dropped}");
    collector.stop().unwrap();
    assert_eq!(command.ended().len(), ran as usize);
}

fn faulty_commands_are_counted_and_delay_nothing(environment: &mut TestEnvironment) {
    let command = Command::new(
        "case $POLYMETER_JOB_ID in
         1) exit 3 ;;
         2) trap '' TERM; while kill -0 $PPID; do sleep 1; done ;;
         3) exec cat /dev/zero >&2 ;;
         4) kill -9 $$ ;;
         5) sleep 100 & exec 0<&- ;;
         esac",
    );
    let mut config = command.config(environment);
    config.job_end.as_mut().unwrap().timeout = Duration::from_secs(2);
    let collector = Collector::start(&config, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    let ids: Vec<String> = (1..=6).map(|id| id.to_string()).collect();
    run_jobs(&mut agent, 1, &ids);
    wait_until("the queue is empty", || is_queue_empty(environment) && command.ended().len() >= 2);
    let value = |name: &str| scrape(&collector).value(name);
    let result = |result: &str| value(&format!("job_end_commands_total{{result=\"{result}\"}}"));
    assert_eq!((result("succeeded"), result("failed"), result("timed_out")), (2.0, 3.0, 1.0));
    assert_eq!(command.ended(), ["5", "6"]);
    // A command that others can write does not run.
    fs::set_permissions(command.program(), PermissionsExt::from_mode(0o777)).unwrap();
    run_jobs(&mut agent, 7, &["7".to_owned()]);
    wait_until("the command was refused", || result("failed") == 4.0);
    fs::remove_file(command.program()).unwrap();
    run_jobs(&mut agent, 8, &["8".to_owned()]);
    wait_until("the command was missed", || result("failed") == 5.0);
    wait_until_empty(environment);
    assert_eq!((command.ended().len(), value("job_end_running")), (2, 0.0));
    collector.stop().unwrap();
}

fn configure(command: &Command) -> String {
    let path = command.path("collector.toml");
    let text = format!("[job_end]\ncommand = ['{}']\ndelay = '1s'\n", command.program().display());
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn a_command_that_was_interrupted_runs_again(environment: &mut TestEnvironment) {
    // The first run does not end.
    let command = Command::new("cat >/dev/null; if mkdir \"$d/began\"; then sleep 100; fi");
    let config = configure(&command);
    let store = match &environment.server {
        Some(server) => server.url(),
        None => environment.url().to_string(),
    };
    let context = zmq::Context::new();
    let start = || RunningCollector::start(&store, &["--config", &config]);
    let collector = start();
    let mut agent = Agent::new(&context, &collector.endpoint, "n1", 1);
    run_jobs(&mut agent, 1, &["1".to_owned()]);
    wait_until("the command runs", || command.path("began").exists());
    // A stop ends it, and returns the end.
    collector.stop();
    let claimed = "SELECT count(*) FROM job_end WHERE claimed_until IS NOT NULL";
    assert_eq!((environment.number("SELECT count(*) FROM job_end"), environment.number(claimed)), (1, 0));
    fs::remove_dir(command.path("began")).unwrap();
    let collector = start();
    wait_until("the command runs again", || command.path("began").exists());
    collector.signal(Signal::KILL);
    drop(collector);
    assert_eq!(environment.number(claimed), 1, "nothing returned it");
    // The claim would expire in some minutes.
    let past = if environment.kind == Kind::Sqlite { "1" } else { "now() - interval '1 s'" };
    environment.execute(&format!("UPDATE job_end SET claimed_until = {past}"));
    let collector = start();
    wait_until("the command has ended", || !command.ended().is_empty());
    wait_until_empty(environment);
    collector.stop();
    assert_eq!(command.ended(), ["1"]);
}

fn a_job_that_resumes_waits_for_its_next_end(environment: &mut TestEnvironment) {
    let command = Command::new("cat >\"$d/json\"");
    let mut config = command.config(environment);
    config.job_end.as_mut().unwrap().delay = Duration::from_secs(5);
    let collector = Collector::start(&config, &environment.context).unwrap();
    let mut first = Agent::to(&environment.context, &collector, "n1", 1);
    run_jobs(&mut first, 1, &["1".to_owned()]);
    // The first node's end arrived before the second node's begin.
    let mut second = Agent::to(&environment.context, &collector, "n2", 2);
    let at_us = begin_us(1);
    let job = job(1, "1", at_us);
    let shape = shape(1, Some(&job));
    second.frame(&[(&shape, at_us, &values(1).0)], &[], &[]);
    second.send_from(0);
    second.wait_until_acknowledged();
    wait_until("the end is removed", || is_queue_empty(environment));
    assert_eq!(command.ended(), Vec::<String>::new());
    let ended = Event::JobEnded { job: JobHandle(1), at_us: at_us + 5_000_000 };
    second.frame(&[], &[], &[ended]);
    second.send_from(0);
    second.wait_until_acknowledged();
    wait_until("the command has ended", || !command.ended().is_empty());
    wait_until_empty(environment);
    collector.stop().unwrap();
    assert_eq!(command.ended(), ["1"]);
    let report: serde_json::Value = serde_json::from_slice(&fs::read(command.path("json")).unwrap()).unwrap();
    assert_eq!(report["nodes"], serde_json::json!(["n1", "n2"]));
}

fn a_restart_of_the_database_repeats_no_command(environment: &mut TestEnvironment) {
    // The command ends while the store is away.
    let command =
        Command::new("cat >/dev/null; mkdir \"$d/began\"; while ! [ -e \"$d/go\" ]; do sleep 0.1; done");
    let collector = command.collector(environment);
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    run_jobs(&mut agent, 1, &["1".to_owned()]);
    wait_until("the command runs", || command.path("began").exists());
    if let Some(server) = &mut environment.server {
        server.crash();
    }
    fs::write(command.path("go"), "").unwrap();
    wait_until("the command has ended", || !command.ended().is_empty());
    // The end of the second job is stored when the store is back.
    let at_us = begin_us(2);
    let job = job(2, "2", at_us);
    let shape = shape(2, Some(&job));
    let ended = Event::JobEnded { job: JobHandle(2), at_us: at_us + 1_000_000 };
    agent.frame(&[(&shape, at_us, &values(1).0)], &[], &[ended]);
    agent.send_from(0);
    if let Some(server) = &mut environment.server {
        server.resume();
    }
    agent.wait_until_acknowledged();
    wait_until("the second command has ended", || command.ended().len() >= 2);
    wait_until_empty(environment);
    collector.stop().unwrap();
    assert_eq!(command.ended(), ["1", "2"]);
}

fn two_collectors_run_a_command_once(environment: &mut TestEnvironment) {
    let command = Command::new("cat >/dev/null");
    let collectors = ["inproc://job-end-1", "inproc://job-end-2"].map(|endpoint| {
        let listen = endpoint.to_owned();
        let config = CollectorConfig { listen, metrics_listen: None, ..command.config(environment) };
        Collector::start(&config, &environment.context).unwrap()
    });
    let ids = ids(40);
    let mut agents: Vec<_> = (1..)
        .zip(&collectors)
        .map(|(number, collector)| Agent::to(&environment.context, collector, &format!("n{number}"), number))
        .collect();
    for (agent, ids) in agents.iter_mut().zip(ids.chunks(20)) {
        run_jobs(agent, 1, ids);
    }
    wait_until("all commands have ended", || command.ended().len() >= ids.len());
    wait_until_empty(environment);
    for collector in collectors {
        collector.stop().unwrap();
    }
    assert_eq!(command.ended(), ids);
}
