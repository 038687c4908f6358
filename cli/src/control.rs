//! `polymeter status` and `polymeter jobs`: asking this node's agent over its control socket.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use polymeter_agent::control::{Answer, Status, SubjectStatus, Verb};

use crate::failure::Failure;
use crate::report::units;
use crate::terminal;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the agent is.
#[derive(Debug, clap::Args)]
pub(crate) struct Place {
    /// The agent's control socket.
    #[arg(long, value_name = "PATH", default_value = "/run/polymeter/agent.sock")]
    socket: PathBuf,

    /// As JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Args)]
pub(crate) struct JobsArguments {
    #[command(flatten)]
    place: Place,
}

pub(crate) fn status(arguments: &StatusArguments) -> Result<(), Failure> {
    let status = ask_status(&arguments.place, &Verb::Status)?;
    terminal::print(&if arguments.place.json { json(&status) } else { status_text(&status) });
    Ok(())
}

pub(crate) fn jobs(arguments: &JobsArguments) -> Result<(), Failure> {
    let mut status = ask_status(&arguments.place, &Verb::Jobs)?;
    status.subjects.retain(|subject| subject.job.is_some());
    terminal::print(&if arguments.place.json { json(&status.subjects) } else { jobs_text(&status.subjects) });
    Ok(())
}

fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string_pretty(value).map(|text| text + "\n").unwrap_or_default()
}

fn ask_status(place: &Place, verb: &Verb) -> Result<Box<Status>, Failure> {
    match ask(&place.socket, verb)? {
        Answer::Status(status) => Ok(status),
        Answer::Refused(refusal) => Err(Failure::Refused(refusal.message)),
        Answer::Registered { .. } | Answer::Done {} => {
            Err(Failure::Refused("the agent answers something else than was asked".to_owned()))
        }
    }
}

/// Asks one thing and reads the answer.
fn ask(socket: &Path, verb: &Verb) -> Result<Answer, Failure> {
    let unreachable = |error: std::io::Error| {
        let nobody = [ErrorKind::NotFound, ErrorKind::ConnectionRefused].contains(&error.kind());
        let silent = [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind());
        let advice = match (nobody, silent) {
            (true, _) => "; is polymeter-agent running? --socket names another place",
            (_, true) => "; the agent does not answer",
            _ => "",
        };
        Failure::Unreachable(format!("cannot ask the agent at {}: {error}{advice}", socket.display()))
    };
    let mut stream = UnixStream::connect(socket).map_err(unreachable)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(unreachable)?;
    let mut line = serde_json::to_vec(verb).map_err(|error| Failure::refused("cannot ask", &error))?;
    line.push(b'\n');
    stream.write_all(&line).map_err(unreachable)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).map_err(unreachable)?;
    serde_json::from_str(&answer).map_err(|error| {
        Failure::refused("the agent's answer cannot be read; is it of another version?", &error)
    })
}

fn status_text(status: &Status) -> String {
    let counts = &status.counts;
    let mut text = format!(
        "session    {}\nsamples    {} due, {} taken, {} late, {} missed, {} absent, {} dropped\ndelivery   {} frames sent, {} acknowledged, {} sent, {} waiting\ncost       {} CPU time, {} memory\n\n",
        status.session,
        counts.due,
        counts.taken,
        counts.late,
        counts.missed,
        counts.absent,
        counts.dropped,
        counts.frames_sent,
        counts.frames_acknowledged,
        units::bytes(counts.bytes_sent),
        units::bytes(counts.outbox_bytes),
        units::seconds(counts.cpu_ns),
        units::bytes(counts.resident_bytes),
    );
    let head = [
        "SUBJECT",
        "SOURCE",
        "DUE",
        "TAKEN",
        "LATE",
        "MISSED",
        "ABSENT",
        "DROPPED",
        "READ MEAN",
        "READ MOST",
    ]
    .map(str::to_owned)
    .to_vec();
    let mut rows = vec![head];
    for subject in &status.subjects {
        let name = subject.job.as_ref().map_or_else(|| "node".to_owned(), |job| format!("job {job}"));
        for source in &subject.sources {
            let tally = &source.tally;
            let counts = [tally.due, tally.taken, tally.late, tally.missed, tally.absent, tally.dropped]
                .map(|count| count.to_string());
            let costs = [source.read_mean_ns, source.read_most_ns].map(units::seconds);
            rows.push([name.clone(), source.name.clone()].into_iter().chain(counts).chain(costs).collect());
        }
    }
    text.push_str(&terminal::table(&rows));
    let missing: Vec<Vec<String>> = status
        .subjects
        .iter()
        .flat_map(|subject| {
            subject.unavailable.iter().map(|(metric, reason)| {
                vec![subject.job.clone().unwrap_or_else(|| "node".to_owned()), metric.clone(), reason.clone()]
            })
        })
        .collect();
    if !missing.is_empty() {
        text.push_str("\nnot available:\n");
        text.push_str(&terminal::table(&missing));
    }
    text
}

fn jobs_text(jobs: &[SubjectStatus]) -> String {
    if jobs.is_empty() {
        return "no job is followed\n".to_owned();
    }
    let head = ["JOB", "OWNER", "SOURCES", "SAMPLES", "MISSED"].map(str::to_owned).to_vec();
    let row = |job: &SubjectStatus| {
        let owner =
            job.user.clone().or_else(|| job.uid.map(|uid| uid.to_string())).unwrap_or_else(|| "-".to_owned());
        let sum = |count: fn(&polymeter_proto::ledger::Tally) -> u64| {
            job.sources.iter().map(|source| count(&source.tally)).sum::<u64>().to_string()
        };
        vec![
            job.job.clone().unwrap_or_default(),
            owner,
            job.sources.len().to_string(),
            sum(|tally| tally.taken),
            sum(|tally| tally.missed),
        ]
    };
    terminal::table(&std::iter::once(head).chain(jobs.iter().map(row)).collect::<Vec<_>>())
}
