//! Figures above the list of jobs: running jobs, those that failed in the last day, and the core-hours
//! that those of the last day requested and did not use.

use std::cmp::Ordering;
use std::sync::Arc;

use axum::response::Response;
use polymeter_service::clock;
use polymeter_store::reader::{Access, FAILED_STATES, JobFilter, JobOrder, JobRow, Read, UsageGroup};
use serde_json::json;

use super::job_cores::wasted_core_s;
use super::parameters::now_ns;
use crate::answer::{Failure, Problem};
use crate::limits;
use crate::request::{Call, Endpoint, OBJECT};

const DAY_NS: i64 = 86_400_000_000_000;

/// The answer is kept for some seconds by this key, which no job has.
const OVERVIEW_KEY: i64 = -1;

pub(super) static OVERVIEW: Endpoint = Endpoint {
    path: "/api/v1/overview",
    id: "overview",
    summary: "The numbers of running jobs and of those that failed in the last day, at most 1,000, and the core-hours \
        that the jobs which ended in the last day wasted (see `usage`). The answer may be 10 s old.",
    parameters: &[],
    formats: OBJECT,
    answer: || {
        let count = json!({"type": "integer"});
        json!({
            "type": "object",
            "required": ["running", "failed", "failed_states", "wasted_core_h", "wasted_jobs", "counted_max"],
            "properties": {
                "running": count.clone(), "failed": count.clone(), "failed_states": {"type": "string"}, "wasted_core_h": {"type": "number"},
                "wasted_jobs": count.clone(), "counted_max": count,
            },
        })
    },
    body: None,
    handler: |call| Box::pin(overview(call)),
};

async fn overview(call: Call) -> Result<Response, Problem> {
    let services = Arc::clone(&call.services);
    let work = move |reader: &mut dyn Read, access: Access| {
        if let Some(text) = services.recent.get(&access, OVERVIEW_KEY, clock::monotonic_ns()) {
            return Ok::<Arc<str>, Failure>(text);
        }
        let running =
            JobFilter { is_ended: Some(false), limit: limits::COUNTED_JOBS, ..JobFilter::default() };
        let failed_states = FAILED_STATES.join(",");
        let failed = JobFilter { state: Some(failed_states.clone()), ..of_last_day(limits::COUNTED_JOBS) };
        let (running, failed) = (reader.jobs(&running)?.len(), reader.jobs(&failed)?.len());
        let day_ns = now_ns().saturating_sub(DAY_NS)..now_ns();
        let all = JobFilter { limit: 1, ..JobFilter::default() };
        let sum = reader.usage(UsageGroup::All, day_ns, &all)?.pop().unwrap_or_default();
        let text: Arc<str> = json!({
            "running": running, "failed": failed, "failed_states": failed_states, "wasted_core_h": (sum.wasted_core_s / 36.0).round() / 100.0,
            "wasted_jobs": sum.jobs, "counted_max": limits::COUNTED_JOBS,
        })
        .to_string()
        .into();
        services.recent.put(access, OVERVIEW_KEY, &text, clock::monotonic_ns());
        Ok(text)
    };
    let text = call.services.readers.read(call.principal, work).await?;
    Ok(call.reply(text.to_string()))
}

/// Jobs that ended in the last day, the one that ended last first.
fn of_last_day(limit: u32) -> JobFilter {
    let since_ns = Some(now_ns().saturating_sub(DAY_NS));
    JobFilter { since_ns, is_ended: Some(true), order: JobOrder::Ended, limit, ..JobFilter::default() }
}

/// Returns the jobs of the last day that a filter selects and that wasted something, those that wasted most
/// first.
pub(super) fn most_wasteful(reader: &mut dyn Read, filter: JobFilter) -> Result<Vec<JobRow>, Failure> {
    let of_day = of_last_day(limits::JUDGED_JOBS);
    let (limit, is_ascending) = (usize::try_from(filter.limit).unwrap_or(usize::MAX), filter.is_ascending);
    let filter = JobFilter {
        since_ns: filter.since_ns.max(of_day.since_ns),
        is_ended: of_day.is_ended,
        order: of_day.order,
        is_ascending: false,
        before: None,
        limit: of_day.limit,
        ..filter
    };
    let mut jobs = reader.jobs(&filter)?;
    jobs.retain(|job| wasted_core_s(job).is_some_and(|core_s| core_s > 0.0));
    jobs.sort_by(|one, other| {
        wasted_core_s(other).partial_cmp(&wasted_core_s(one)).unwrap_or(Ordering::Equal)
    });
    if is_ascending {
        jobs.reverse();
    }
    jobs.truncate(limit);
    Ok(jobs)
}
