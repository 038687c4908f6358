//! A test of mails with real programs: msmtp in place of sendmail, and a server that speaks SMTP.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use polymeter_collector::Collector;
use polymeter_collector::notices::Action;
use polymeter_test_harness::{servers, skip};
use serde_json::{Value, json};

use crate::notices::{HOSTILE, Site, fired, notices, run_jobs};
use crate::support::agent::Agent;
use crate::support::openmetrics::scrape;
use crate::support::{Kind, TestEnvironment, wait_until};

polymeter_test_harness::tests![mails_reach_a_server_by_smtp];

/// Python's server, which prints its port, and each mail as it understands it.
const SERVER: &str = r#"
import asyncore, email, email.policy, json, smtpd
class Server(smtpd.SMTPServer):
    def process_message(self, peer, mailfrom, rcpttos, data, **options):
        mail = email.message_from_bytes(data, policy=email.policy.default)
        headers = [name.lower() for name in mail.keys()]
        print(json.dumps({"from": mailfrom, "to": rcpttos, "headers": headers, "defects": len(mail.defects),
            "subject": mail["subject"], "shown_to": mail["to"], "text": mail.get_content()}), flush=True)
server = Server(("127.0.0.1", 0), None)
print(server.socket.getsockname()[1], flush=True)
asyncore.loop()
"#;

struct Server {
    process: Child,
    port: u16,
    mails: Receiver<Value>,
}

impl Server {
    /// Skips the running test if Python has no such server.
    fn start() -> Self {
        let mut python = Command::new("python3");
        python.args(["-W", "ignore", "-c", SERVER]).stdout(Stdio::piped()).stderr(Stdio::null());
        let Ok(mut process) = python.spawn() else { skip("msmtp", "Python is missing") };
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let port = lines.next().and_then(|line| line.ok()?.parse().ok());
        let Some(port) = port else {
            process.wait().unwrap();
            skip("msmtp", "Python has no module smtpd")
        };
        let (sender, mails) = sync_channel(16);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if sender.send(serde_json::from_str(&line).unwrap()).is_err() {
                    return;
                }
            }
        });
        Self { process, port, mails }
    }

    fn end(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Program in place of sendmail that delivers to the port.
fn msmtp(site: &Site, port: u16) {
    let (program, libraries) = (servers::root().join("usr/bin/msmtp"), servers::libraries());
    if !program.exists() {
        skip("msmtp", "msmtp is missing; `make test-mail` extracts it");
    }
    let settings = format!(
        "account default\nhost 127.0.0.1\nport {port}\nauth off\ntls off\nfrom polymeter@example.org\n"
    );
    fs::write(site.path("msmtprc"), settings).unwrap();
    let script = format!(
        "#!/bin/sh\nLD_LIBRARY_PATH='{}' exec '{}' -C '{}' \"$@\"\n",
        libraries.display(),
        program.display(),
        site.path("msmtprc").display()
    );
    fs::write(site.path("sendmail"), script).unwrap();
    fs::set_permissions(site.path("sendmail"), PermissionsExt::from_mode(0o755)).unwrap();
}

fn assert_mail_of_trigger(agent: &mut Agent, server: &Server) {
    agent.frame(&[], &[], &[fired(2, "Stillstand \u{2013} n1")]);
    agent.send_from(0);
    agent.wait_until_acknowledged();
    let mail = server.mails.recv_timeout(Duration::from_secs(120)).unwrap();
    let subject = "Job 42: Trigger fired: Stillstand \u{2013} n1 on n1: cpu.usage was 0 per second";
    assert_eq!((&mail["subject"], &mail["to"]), (&json!(subject), &json!(["ada@example.org"])), "{mail}");
}

fn mails_reach_a_server_by_smtp() {
    let (site, environment) = (Site::new(), TestEnvironment::new(Kind::Sqlite));
    let mut server = Server::start();
    msmtp(&site, server.port);
    // A sentence and a text that are not plain, with the name that a user chose.
    let rules = fs::read_to_string(site.path("rules/site.toml")).unwrap();
    fs::write(
        site.path("rules/site.toml"),
        rules.replace("The job goes on.", "Der Job läuft noch \u{2013} 日本語."),
    )
    .unwrap();
    fs::write(site.path("text"), "{sentence}\n.\n..\nFrom {user}\nName: {name}\n").unwrap();
    let mut config = site.config(&environment, &[Action::Mail], None);
    let settings = config.notices.as_mut().unwrap();
    settings.text = Some(site.path("text"));
    settings.retry_after = Duration::from_millis(10);
    let collector = Collector::start(&config, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    run_jobs(&mut agent, 1);
    let mut mails: Vec<Value> =
        (0..2).map(|_| server.mails.recv_timeout(Duration::from_secs(120)).unwrap()).collect();
    mails.sort_by_key(|mail| mail["subject"].to_string());
    for mail in &mails {
        assert_eq!(
            (&mail["from"], &mail["to"]),
            (&json!("polymeter@example.org"), &json!(["ada@example.org"]))
        );
        assert_eq!((&mail["shown_to"], &mail["defects"]), (&json!("ada@example.org"), &json!(0)), "{mail}");
        let headers = mail["headers"].as_array().unwrap();
        assert!(!headers.iter().any(|name| name == "bcc" || name == "cc"), "{mail}");
        let text = mail["text"].as_str().unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1..4], [".", "..", "From ada"], "{text:?}");
        assert!(
            lines.len() == 5 && lines[4].starts_with("Name: x") && lines[4].contains("$(touch hacked)"),
            "{text:?}"
        );
        assert!(HOSTILE.contains('\r') && !text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text:?}");
    }
    assert_eq!(mails[1]["subject"], "Job 42: Der Job läuft noch \u{2013} 日本語.");
    assert!(
        mails[1]["text"].as_str().unwrap().starts_with("Der Job läuft noch \u{2013} 日本語.\r\n"),
        "{}",
        mails[1]
    );
    assert!(
        mails[0]["subject"].as_str().unwrap().starts_with("Job 41: The job has ended after "),
        "{}",
        mails[0]
    );
    assert_mail_of_trigger(&mut agent, &server);
    // The server passes a mail on before it answers msmtp.
    wait_until("all three were sent", || scrape(&collector).value("notices_total{result=\"sent\"}") >= 3.0);
    // While the server is down, each mail is tried twice, and listed with the cause.
    server.end();
    run_jobs(&mut agent, 3);
    wait_until("both were tried twice", || {
        scrape(&collector).value("notices_total{result=\"failed\"}") >= 2.0
    });
    collector.stop().unwrap();
    let rows = notices(&environment);
    for (job, result) in rows.iter().map(|row| (row.job_id.as_str(), row.result.as_deref().unwrap())) {
        if ["41", "42"].contains(&job) {
            assert_eq!(result, "mail: sent");
        } else {
            assert!(
                result.starts_with("mail: failed twice: ") && result.contains("cannot connect to 127.0.0.1"),
                "{rows:#?}"
            );
        }
    }
    assert!(!site.path("hacked").exists());
}
