//! This node's agent, over its control socket.

use std::path::Path;
use std::time::Duration;

use polymeter_client::connection::agent::ask_status;
use polymeter_proto::control::{AgentCounts, Request, StatusReport, StatusRequest};
use polymeter_service::clock;

use super::agent_figures::{AgentFigures, Budgets};
use super::verdict::{State, Verdict};
use crate::failure::Failure;

/// Asks twice: counts of an agent are totals, and those of the time in between are judged.
pub(super) fn check(socket: &Path, interval: Duration, budgets: Budgets) -> Result<Verdict, Failure> {
    let (first, second) = match statuses(socket, interval) {
        Ok(statuses) => statuses,
        Err(failure @ (Failure::NotRunning(_) | Failure::Unreachable(_))) => {
            return Ok(Verdict::critical("agent of this node".to_owned(), failure.to_string()));
        }
        Err(failure) => return Err(failure),
    };
    let mut problems = Vec::new();
    if !second.collector.connected {
        let text = format!("NOT connected to the collector at {}", second.collector.address);
        problems.push((State::Warning, text));
    }
    if let Some(left_out) = second.counts.jobs_left_out.filter(|left_out| *left_out > 0) {
        problems.push((State::Critical, format!("{left_out} jobs NOT tracked for want of file descriptors")));
    }
    let figures = figures(&first, &second).judged(budgets);
    Ok(Verdict { subject: "agent of this node".to_owned(), problems, figures })
}

fn statuses(socket: &Path, interval: Duration) -> Result<(StatusReport, StatusReport), Failure> {
    let request = Request::Status(StatusRequest {});
    let first = ask_status(socket, &request)?;
    clock::sleep(interval);
    Ok((first, ask_status(socket, &request)?))
}

fn lost(counts: &AgentCounts) -> u64 {
    counts.missed.saturating_add(counts.dropped).saturating_add(counts.refused)
}

fn figures(first: &StatusReport, second: &StatusReport) -> AgentFigures {
    let (before, after) = (&first.counts, &second.counts);
    let now_us = second.collector.now_us;
    let age_s =
        |us: i64| Duration::from_micros(u64::try_from(now_us.saturating_sub(us)).unwrap_or(0)).as_secs_f64();
    AgentFigures {
        interval_s: age_s(first.collector.now_us),
        newest_age_s: second.collector.acknowledged_us.map(age_s),
        lost: Some(lost(after).saturating_sub(lost(before))),
        due: Some(after.due.saturating_sub(before.due)),
        late: Some(after.late.saturating_sub(before.late)),
        cpu_ns: Some(after.cpu_ns.saturating_sub(before.cpu_ns)),
        resident_bytes: Some(after.resident_bytes),
        backlog_bytes: Some(second.collector.backlog_bytes),
    }
}
