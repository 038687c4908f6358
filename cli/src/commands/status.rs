//! What an agent says of itself, as people read it.

use polymeter_agent::control::{Status, SubjectStatus};
use polymeter_agent::request::{by_reason, named};

use crate::report::units;
use crate::terminal;

pub(super) fn status_text(status: &Status) -> String {
    let counts = &status.counts;
    let refused = match counts.refused {
        0 => String::new(),
        refused => format!(", {refused} refused by the collector"),
    };
    let spooled = match counts.spool_bytes {
        0 => String::new(),
        bytes => format!(", {} in the spool", units::bytes(bytes)),
    };
    let (collector, jobs) = (collector_text(status), jobs_left_out(status));
    let mut text = format!(
        "session    {}\n{collector}samples    {} due, {} taken, {} late, {} missed, {} absent, {} dropped{refused}\ndelivery   {} frames sent, {} acknowledged, {} sent, {} waiting{spooled}\n{jobs}cost       {} CPU time, {} memory\n\n",
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
    let missing = missing(&status.subjects);
    if !missing.is_empty() {
        text.push_str("\nnot available:\n");
        text.push_str(&terminal::table(&missing));
    }
    text
}

/// Whether the collector can be reached, since when, and what waits for it.
fn collector_text(status: &Status) -> String {
    let Some(collector) = &status.collector else { return String::new() };
    let ago = |us: i64| {
        units::seconds(u64::try_from(collector.now_us.saturating_sub(us)).unwrap_or(0).saturating_mul(1_000))
    };
    let state = if collector.connected { "connected" } else { "NOT connected" };
    let since = collector.since_us.map_or_else(String::new, |us| format!(" for {}", ago(us)));
    let acknowledged = match collector.acknowledged_us {
        None => "nothing acknowledged yet".to_owned(),
        Some(us) => format!("last acknowledgement {} ago", ago(us)),
    };
    let waiting = units::bytes(collector.backlog_bytes);
    format!("collector  {}, {state}{since}, {acknowledged}, {waiting} waiting\n", collector.address)
}

/// The jobs that are not followed, where there are any.
fn jobs_left_out(status: &Status) -> String {
    let counts = &status.counts;
    if counts.jobs_left_out == 0 {
        return String::new();
    }
    format!(
        "jobs       {} followed, {} NOT followed: {} of {} file descriptors are open\n",
        counts.jobs, counts.jobs_left_out, counts.descriptors, counts.descriptor_limit
    )
}

/// What cannot be had: a row for each reason of each subject.
fn missing(subjects: &[SubjectStatus]) -> Vec<Vec<String>> {
    let of_subject = |subject: &SubjectStatus| {
        let name = subject.job.clone().unwrap_or_else(|| "node".to_owned());
        let row =
            |(reason, metrics): (&str, Vec<&str>)| vec![name.clone(), named(&metrics), reason.to_owned()];
        by_reason(&subject.unavailable).into_iter().map(row).collect::<Vec<_>>()
    };
    subjects.iter().flat_map(of_subject).collect()
}

pub(super) fn jobs_text(jobs: &[SubjectStatus]) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_told_once_for_all_its_metrics() {
        let subject = |job: Option<&str>| SubjectStatus {
            job: job.map(str::to_owned),
            uid: None,
            user: None,
            started_us: None,
            cgroups: Vec::new(),
            sources: Vec::new(),
            unavailable: (0..80)
                .map(|number| (format!("node.vm.m{number}"), "/proc/vmstat: No such file".to_owned()))
                .collect(),
        };
        let told = missing(&[subject(None), subject(Some("7"))]);
        let row = |name: &str| {
            [name, "node.vm.m0, node.vm.m1, node.vm.m2 and 77 more", "/proc/vmstat: No such file"]
                .map(str::to_owned)
        };
        assert_eq!(told, [row("node").to_vec(), row("7").to_vec()]);
    }
}
