//! Tests of notices, in each kind of store: with a program in place of sendmail, a server and a command.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use polymeter_collector::notices::{Action, NoticesConfig};
use polymeter_collector::{Collector, CollectorConfig};
use polymeter_proto::control::{CollectorAnswer, NoticesRequest};
use polymeter_proto::ledger::{Event, Firing, JobDetails, JobDetailsUpdate};
use polymeter_proto::series::JobHandle;
use polymeter_store::NoticeTable;
use polymeter_store::reader::{NoticeRow, Read};
use tempfile::TempDir;

use crate::support::agent::{Agent, job, shape, values};
use crate::support::openmetrics::scrape;
use crate::support::reading::connect_as;
use crate::support::{TestEnvironment, now_us, wait_until};

scenarios! {
    notices_are_sent_once_by_each_action,
    a_dry_run_and_a_user_who_wants_none_send_nothing,
    what_failed_is_repeated_once,
    what_hangs_is_not_tried_for_each_notice,
    a_redirect_is_named,
    choices_name_rules_that_exist_and_are_listed,
    a_trigger_that_fired_is_noticed_once,
}

const ROOT: u32 = 0;

/// Name with which a user attacks the header of a mail, a shell and a terminal.
pub(crate) const HOSTILE: &str =
    "x\r\nBcc: all@example.org\r\n\r\n$(touch hacked) `touch hacked` ; \u{1b}[2J \u{202e}";

const RULES: &str = r#"
[over]
severity = "note"
when = "ended and elapsed > seconds"
sentence = "The job has ended after {elapsed}."
evidence = "{elapsed}"
thresholds = { seconds = 1 }
[over.remedy]
any = "Look at its output."

[going-on]
severity = "warning"
when = "not ended and elapsed > seconds"
sentence = "The job goes on."
evidence = "{elapsed}"
thresholds = { seconds = 1 }
"#;

pub(crate) struct Site {
    directory: TempDir,
}

impl Site {
    pub(crate) fn new() -> Self {
        let site = Self { directory: tempfile::tempdir().unwrap() };
        let d = site.directory.path().display().to_string();
        let program = |name: &str, text: &str| {
            fs::write(site.path(name), format!("#!/bin/sh\n{text}\n")).unwrap();
            fs::set_permissions(site.path(name), PermissionsExt::from_mode(0o755)).unwrap();
        };
        program(
            "sendmail",
            &format!("echo \"$*\" >>'{d}/arguments'; cat >>'{d}/mail'; echo END >>'{d}/mail'"),
        );
        program(
            "notify",
            &format!(
                "cd '{d}'; env | grep -a ^POLYMETER_ | sort >>'{d}/variables'; cat >>'{d}/json'; echo >>'{d}/json'"
            ),
        );
        fs::create_dir(site.path("rules")).unwrap();
        fs::write(site.path("rules/site.toml"), RULES).unwrap();
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(crate) fn config(
        &self,
        environment: &TestEnvironment,
        actions: &[Action],
        webhook: Option<SocketAddr>,
    ) -> CollectorConfig {
        let notices = NoticesConfig {
            actions: actions.to_vec(),
            rules: self.path("rules"),
            interval: Duration::from_secs(1),
            sendmail: self.path("sendmail"),
            from: "polymeter@example.org".to_owned(),
            domain: Some("example.org".to_owned()),
            webhook: webhook.map(|address| format!("http://{address}/hook").parse().unwrap()),
            command: vec![self.path("notify").display().to_string(), "--site".to_owned()],
            ..NoticesConfig::default()
        };
        let metrics_listen = Some("127.0.0.1:0".parse().unwrap());
        CollectorConfig { notices: Some(notices), metrics_listen, ..environment.config() }
    }
}

/// Ends the first of two jobs.
pub(crate) fn run_jobs(agent: &mut Agent, handle: u32) {
    let begin_us = now_us() - 600_000_000;
    for (handle, ends) in [(handle, true), (handle + 1, false)] {
        let job = job(handle, &(40 + handle).to_string(), begin_us);
        let shape = shape(handle, Some(&job));
        let details = JobDetails { name: Some(HOSTILE.into()), ..JobDetails::default() };
        let details = Event::JobDetails(JobDetailsUpdate { job: JobHandle(handle), details });
        let rows: Vec<_> = (0..60).map(|second| (begin_us + second * 1_000_000, values(second).0)).collect();
        let rows: Vec<_> = rows.iter().map(|(at_us, values)| (&shape, *at_us, values.as_slice())).collect();
        let ended = Event::JobEnded { job: JobHandle(handle), at_us: begin_us + 60_000_000 };
        // In one transaction, so that the ended job is never a running one.
        let events: Vec<Event> = [details].into_iter().chain(ends.then_some(ended)).collect();
        agent.frame(&rows, &[], &events);
    }
    agent.send_from(0);
    agent.wait_until_acknowledged();
}

pub(crate) fn notices(environment: &TestEnvironment) -> Vec<NoticeRow> {
    let mut reader = environment.reader();
    let mut rows = (&mut reader as &mut dyn Read).notices(None, 100).unwrap();
    rows.sort_by(|one, other| one.rule.cmp(&other.rule));
    rows
}

/// Answers each request with the status 204, and passes on its body.
fn serve() -> (SocketAddr, std::sync::mpsc::Receiver<String>) {
    serve_with("HTTP/1.1 204 No Content\r\n\r\n")
}

fn serve_with(answer: &'static str) -> (SocketAddr, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, bodies) = std::sync::mpsc::sync_channel(16);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut received = Vec::new();
            let mut chunk = [0; 4096];
            let body = loop {
                let count = stream.read(&mut chunk).unwrap();
                received.extend_from_slice(&chunk[..count]);
                let text = String::from_utf8_lossy(&received).into_owned();
                if let Some((head, body)) = text.split_once("\r\n\r\n") {
                    let length = head.to_ascii_lowercase();
                    let length = length.split("content-length: ").nth(1).unwrap();
                    if body.len() >= length.lines().next().unwrap().parse().unwrap() {
                        break body.to_owned();
                    }
                }
                assert!(count > 0, "the request is cut off: {text}");
            };
            stream.write_all(answer.as_bytes()).unwrap();
            if sender.send(body).is_err() {
                return;
            }
        }
    });
    (address, bodies)
}

fn notices_are_sent_once_by_each_action(environment: &mut TestEnvironment) {
    let (site, (address, bodies)) = (Site::new(), serve());
    let config = site.config(environment, &Action::ALL, Some(address));
    let collector = Collector::start(&config, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    run_jobs(&mut agent, 1);
    wait_until("both notices were sent", || {
        notices(environment).iter().filter(|row| row.result.is_some()).count() == 2
    });
    let rows = notices(environment);
    let mut facts: Vec<_> =
        rows.iter().map(|row| (row.rule.as_str(), row.job_id.as_str(), row.recipient.as_str())).collect();
    facts.sort_unstable();
    assert_eq!(facts, [("going-on", "42", "ada@example.org"), ("over", "41", "ada@example.org")]);
    assert!(
        rows.iter().all(|row| row.result.as_deref() == Some("mail: sent; webhook: sent; command: sent")),
        "{rows:?}"
    );
    wait_until("both were counted", || {
        (scrape(&collector).value("notices_total{result=\"sent\"}") - 2.0).abs() < f64::EPSILON
    });
    assert_eq!(site.text("arguments"), "-t -i\n-t -i\n");
    let mail = site.text("mail");
    let headers: Vec<&str> =
        mail.split("END\n").filter_map(|mail| mail.split_once("\r\n\r\n")).map(|(head, _)| head).collect();
    assert_eq!(headers.len(), 2, "{mail}");
    for header in headers {
        assert!(header.contains("\r\nTo: ada@example.org\r\nSubject: Job 4"), "{header}");
        assert!(!header.contains("Bcc") && header.lines().count() == 7, "{header}");
    }
    let variables = site.text("variables");
    assert!(
        variables.contains("POLYMETER_NOTICE_RULE=over\n") && variables.contains("POLYMETER_JOB_OWNER=ada\n"),
        "{variables}"
    );
    assert!(!site.path("hacked").exists());
    let mut rules: Vec<String> = (0..2)
        .map(|_| {
            let body = bodies.recv_timeout(Duration::from_secs(60)).unwrap();
            let body: serde_json::Value = serde_json::from_str(&body).unwrap();
            assert!(body["text"].as_str().unwrap().contains("User: ada\n"), "{body}");
            body["rule"].as_str().unwrap().to_owned()
        })
        .collect();
    rules.sort();
    assert_eq!(rules, ["going-on", "over"]);
    collector.stop().unwrap();
    // Another collector examines the running job again, and the ended one once more.
    environment.execute("UPDATE job_usage SET elapsed_s = NULL, claimed_until = NULL, attempts = 0");
    let collector = Collector::start(&config, &environment.context).unwrap();
    wait_until("the ended job was examined", || {
        environment.number("SELECT count(*) FROM job_usage WHERE elapsed_s IS NULL") == 0
    });
    // The next round has begun when it claims a job again.
    environment.execute("UPDATE job_usage SET elapsed_s = NULL, claimed_until = NULL, attempts = 0");
    wait_until("and again", || {
        environment.number("SELECT count(*) FROM job_usage WHERE elapsed_s IS NULL") == 0
    });
    collector.stop().unwrap();
    assert_eq!(notices(environment), rows);
    assert_eq!(site.text("arguments"), "-t -i\n-t -i\n");
}

fn a_dry_run_and_a_user_who_wants_none_send_nothing(environment: &mut TestEnvironment) {
    let site = Site::new();
    let mut config = site.config(environment, &[Action::Mail], None);
    config.notices.as_mut().unwrap().dry_run = true;
    environment.collector().stop().unwrap();
    let mut table = NoticeTable::open(&environment.url()).unwrap();
    table.opt(1000, Some("going-on"), true).unwrap();
    table.opt(1000, Some("going-on"), true).unwrap();
    assert_eq!(opted_out(&mut table), [(1000, Some("going-on".to_owned()))]);
    let collector = Collector::start(&config, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    run_jobs(&mut agent, 1);
    wait_until("the notice of the ended job is recorded", || {
        notices(environment).iter().any(|row| row.rule == "over" && row.result.is_some())
    });
    collector.stop().unwrap();
    let rows = notices(environment);
    assert_eq!((rows.len(), rows[0].result.as_deref()), (1, Some("dry run: not sent")), "{rows:?}");
    assert_eq!(site.text("arguments"), "");
    table.opt(1000, None, true).unwrap();
    assert_eq!(opted_out(&mut table), [(1000, None), (1000, Some("going-on".to_owned()))]);
    table.opt(1000, None, false).unwrap();
    assert!(opted_out(&mut table).is_empty());
}

fn what_failed_is_repeated_once(environment: &mut TestEnvironment) {
    let site = Site::new();
    // The mail of the rule `over` fails the first time, that of `going-on` each time.
    let d = site.directory.path().display().to_string();
    let script = format!(
        "#!/bin/sh\ntext=$(cat); printf '%s\\n' \"$text\" >>'{d}/mail'; echo \"$*\" >>'{d}/arguments'; echo 'connection refused' >&2
         case \"$text\" in *ended\\ after*) mkdir '{d}/tried' 2>/dev/null && exit 75; exit 0;; *) exit 69;; esac\n"
    );
    fs::write(site.path("sendmail"), script).unwrap();
    let mut config = site.config(environment, &[Action::Command, Action::Mail], None);
    config.notices.as_mut().unwrap().retry_after = Duration::from_millis(10);
    let collector = Collector::start(&config, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    run_jobs(&mut agent, 1);
    let counted = |result: &str| scrape(&collector).value(&format!("notices_total{{result=\"{result}\"}}"));
    wait_until("each was tried twice", || counted("sent") + counted("failed") >= 2.0);
    assert_eq!((counted("sent"), counted("failed")), (1.0, 1.0));
    collector.stop().unwrap();
    let results: Vec<_> =
        notices(environment).into_iter().map(|row| (row.rule, row.result.unwrap())).collect();
    let failed = format!(
        "command: sent; mail: failed twice: {d}/sendmail ended with exit status: 69: connection refused"
    );
    let rows = [("going-on", failed.as_str()), ("over", "command: sent; mail: sent")];
    assert_eq!(results, rows.map(|(rule, result)| (rule.to_owned(), result.to_owned())));
    assert_eq!(site.text("arguments").lines().count(), 4, "two mails, each twice");
    assert_eq!(site.text("json").lines().count(), 2, "what was sent is not repeated");
}

/// Results of the notices about two jobs, each after its first try.
fn results(environment: &mut TestEnvironment, config: &CollectorConfig) -> Vec<String> {
    let collector = Collector::start(config, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    run_jobs(&mut agent, 1);
    wait_until("both notices were tried", || {
        notices(environment).iter().filter(|row| row.result.is_some()).count() == 2
    });
    collector.stop().unwrap();
    notices(environment).into_iter().filter_map(|row| row.result).collect()
}

fn what_hangs_is_not_tried_for_each_notice(environment: &mut TestEnvironment) {
    let site = Site::new();
    fs::write(site.path("notify"), "#!/bin/sh\nexec sleep 1000\n").unwrap();
    let mut config = site.config(environment, &[Action::Command], None);
    let notices = config.notices.as_mut().unwrap();
    (notices.timeout, notices.retry_after) = (Duration::from_millis(50), Duration::from_secs(3600));
    let mut results = results(environment, &config);
    results.sort();
    let killed = format!("command: failed once: {} was killed after 50ms", site.path("notify").display());
    assert_eq!(
        results,
        [killed.as_str(), "command: failed once: not tried: that for another notice took too long"]
    );
}

fn a_redirect_is_named(environment: &mut TestEnvironment) {
    let (site, (address, _bodies)) =
        (Site::new(), serve_with("HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n"));
    let mut config = site.config(environment, &[Action::Webhook], Some(address));
    config.notices.as_mut().unwrap().retry_after = Duration::from_secs(3600);
    let expected = "webhook: failed once: the server answered with the status 302, which leads to /other; name that in `webhook`";
    assert_eq!(results(environment, &config), [expected, expected]);
}

/// A trigger that fired and is to be noticed.
pub(crate) fn fired(handle: u32, rule: &str) -> Event {
    Event::Fired(Firing {
        job: JobHandle(handle),
        trigger: now_us().cast_unsigned(),
        rule: rule.try_into().unwrap(),
        by: None,
        at_us: now_us(),
        keeps_us: None,
        notice: true,
        why: "cpu.usage was 0 per second".into(),
        actions: "marked".into(),
    })
}

fn a_trigger_that_fired_is_noticed_once(environment: &mut TestEnvironment) {
    let site = Site::new();
    let mut config = site.config(environment, &[Action::Mail], None);
    // Only triggers are noticed.
    fs::remove_file(site.path("rules/site.toml")).unwrap();
    config.notices.as_mut().unwrap().interval = Duration::from_secs(3600);
    environment.collector().stop().unwrap();
    let mut table = NoticeTable::open(&environment.url()).unwrap();
    table.opt(1000, Some("trigger:quiet"), true).unwrap();
    let collector = Collector::start(&config, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    run_jobs(&mut agent, 1);
    let silent = Event::Fired(match fired(2, "unnoticed") {
        Event::Fired(firing) => Firing { notice: false, ..firing },
        other => panic!("{other:?}"),
    });
    // The running job's triggers: the last shows that those before are done.
    let events =
        [silent, fired(2, "stall"), fired(2, "quiet"), fired(2, "stall"), fired(2, "x $(touch hacked)")];
    agent.frame(&[], &[], &events);
    agent.send_from(0);
    agent.wait_until_acknowledged();
    let of_triggers = || -> Vec<NoticeRow> {
        notices(environment).into_iter().filter(|row| row.rule.starts_with("trigger:")).collect()
    };
    wait_until("the last was sent", || {
        of_triggers().iter().any(|row| row.rule.starts_with("trigger:x") && row.result.is_some())
    });
    collector.stop().unwrap();
    let sent = of_triggers();
    let facts: Vec<_> = sent.iter().map(|row| (row.rule.as_str(), row.job_id.as_str())).collect();
    assert_eq!(facts, [("trigger:stall", "42"), ("trigger:x___touch_hacked_", "42")]);
    assert!(sent.iter().all(|row| row.result.as_deref() == Some("mail: sent")), "{sent:?}");
    assert_eq!(sent[0].subject, "Job 42: Trigger fired: stall on n1: cpu.usage was 0 per second");
    assert!(sent[0].text.contains("polymeter notices --off trigger:stall"), "{}", sent[0].text);
    assert!(!site.path("hacked").exists());
}

fn opted_out(table: &mut NoticeTable) -> Vec<(u32, Option<String>)> {
    let choices = table.opted_out(Some(1000)).unwrap();
    choices.into_iter().map(|choice| (choice.uid, choice.rule)).collect()
}

fn ask(uid: u32, socket: &Path, rule: Option<&str>, off: Option<bool>) -> CollectorAnswer {
    let mut stream = BufReader::new(connect_as(uid, socket));
    let request = NoticesRequest { rule: rule.map(str::to_owned), off };
    writeln!(stream.get_mut(), "{}", request.to_line()).unwrap();
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

fn choices(uid: u32, socket: &Path) -> (bool, Vec<(u32, Option<String>)>) {
    let CollectorAnswer::NoticeChoices(list) = ask(uid, socket, None, None) else { panic!("no list") };
    (list.all_users, list.choices.into_iter().map(|choice| (choice.uid, choice.rule)).collect())
}

fn choices_name_rules_that_exist_and_are_listed(environment: &mut TestEnvironment) {
    const USERS: [u32; 2] = [64_001, 64_002];
    let site = Site::new();
    let mut config = site.config(environment, &[], None);
    let socket = site.path("control.sock");
    config.control.socket = Some(socket.clone());
    environment.collector().stop().unwrap();
    let collector = Collector::start(&config, &environment.context).unwrap();
    assert_eq!(choices(USERS[0], &socket), (false, Vec::new()));
    for (rule, off) in [("no-such-rule", true), ("no-such-rule", false), ("over-", true)] {
        let CollectorAnswer::Refused(refusal) = ask(USERS[0], &socket, Some(rule), Some(off)) else {
            panic!("{rule} was recorded")
        };
        assert_eq!((refusal.code.as_str(), refusal.field.as_deref()), ("unknown_rule", Some("rule")));
        let rules = "going-on, idle-gpu, memory-near-limit, node-below-others, over, wasted-core-hours";
        let message = refusal.message.to_string();
        assert!(message.contains(&format!("`{rule}`")) && message.ends_with(rules), "{message}");
    }
    assert_eq!(choices(ROOT, &socket), (true, Vec::new()), "nothing was stored");
    let chosen = [(USERS[0], Some("over")), (USERS[0], Some("idle-gpu")), (USERS[0], Some("trigger:oom"))];
    for (uid, rule) in chosen.into_iter().chain([(USERS[1], None)]) {
        assert_eq!(ask(uid, &socket, rule, Some(true)), CollectorAnswer::Done {});
    }
    let own = [(USERS[0], Some("idle-gpu".to_owned())), (USERS[0], Some("over".to_owned()))];
    assert_eq!(ask(USERS[0], &socket, Some("trigger:oom"), Some(false)), CollectorAnswer::Done {});
    assert_eq!(choices(USERS[0], &socket), (false, own.to_vec()));
    assert_eq!(choices(USERS[1], &socket), (false, vec![(USERS[1], None)]));
    assert_eq!(choices(ROOT, &socket), (true, [own.to_vec(), vec![(USERS[1], None)]].concat()));
    // A rule that has gone can be turned on again.
    fs::remove_file(site.path("rules/site.toml")).unwrap();
    assert_eq!(ask(USERS[0], &socket, Some("over"), Some(false)), CollectorAnswer::Done {});
    assert_eq!(choices(USERS[0], &socket).1, own[..1]);
    collector.stop().unwrap();
}
