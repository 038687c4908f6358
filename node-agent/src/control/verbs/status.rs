//! `status`: the state of the agent, of the node and of the jobs.

use std::sync::atomic::Ordering::Relaxed;

use polymeter_proto::control::{
    AgentCounts, Answer, CollectorStatus, Refusal, SourceStatus, StatusReport, StatusRequest, SubjectStatus,
};

use super::Execute;
use crate::clock;
use crate::control::request_handler::RequestHandler;
use crate::counters::Counters;
use crate::principal::Principal;
use crate::request::{JobView, SourceView};
use crate::sources::agent_self::resident_bytes;

/// The version of the control language.
const VERSION: u32 = 1;

impl Execute for StatusRequest {
    type Spec = ();

    fn parse(self, _: Principal) -> Result<(), Refusal> {
        Ok(())
    }

    async fn execute((): (), handler: &RequestHandler<'_>) -> Result<Answer, Refusal> {
        report(handler).await
    }
}

/// Returns the state of the agent, of the node and of the jobs that the principal may see.
pub(super) async fn report(handler: &RequestHandler<'_>) -> Result<Answer, Refusal> {
    let view = handler.view().await?;
    let context = handler.context;
    Ok(Answer::Status(StatusReport {
        version: VERSION,
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        session: context.session.to_string(),
        counts: counts(&context.counters),
        collector: collector(&context.counters),
        subjects: view.subjects.iter().map(subject).collect(),
    }))
}

fn source(view: &SourceView) -> SourceStatus {
    SourceStatus {
        name: view.name.clone(),
        tally: view.tally,
        reads: view.reads,
        read_mean_ns: view.read_total_ns.checked_div(view.reads).unwrap_or(0),
        read_max_ns: view.read_max_ns,
    }
}

fn subject(view: &JobView) -> SubjectStatus {
    SubjectStatus {
        job: view.job_id.as_ref().map(ToString::to_string),
        uid: view.owner_uid,
        user: view.owner.as_ref().map(ToString::to_string),
        started_us: view.started_us,
        cgroups: view.cgroups.clone(),
        sources: view.sources.iter().map(source).collect(),
        unavailable: view.unavailable.clone(),
    }
}

fn counts(counters: &Counters) -> AgentCounts {
    AgentCounts {
        due: counters.due.load(Relaxed),
        taken: counters.taken.load(Relaxed),
        late: counters.late.load(Relaxed),
        missed: counters.missed.load(Relaxed),
        absent: counters.absent.load(Relaxed),
        dropped: counters.all_dropped(),
        refused: counters.refused.load(Relaxed),
        frames_sent: counters.frames_sent.load(Relaxed),
        frames_acknowledged: counters.frames_acknowledged.load(Relaxed),
        bytes_sent: counters.bytes_sent.load(Relaxed),
        outbox_bytes: counters.outbox_bytes.load(Relaxed),
        spool_bytes: counters.spool_bytes.load(Relaxed),
        cpu_ns: clock::process_cpu_ns(),
        resident_bytes: resident_bytes(),
        jobs: counters.jobs.load(Relaxed),
        jobs_left_out: counters.jobs_left_out.load(Relaxed),
        descriptors: counters.descriptors.load(Relaxed),
        descriptor_limit: counters.descriptor_limit.load(Relaxed),
        unknown_lines: counters.unknown_lines.load(Relaxed),
    }
}

fn collector(counters: &Counters) -> CollectorStatus {
    let state = &counters.collector;
    let time = |us: i64| (us > 0).then_some(us);
    CollectorStatus {
        address: state.endpoint().as_ref().to_owned(),
        version: state.version().map(|version| version.as_ref().to_owned()),
        connected: state.is_connected.load(Relaxed),
        since_us: time(state.since_us.load(Relaxed)),
        acknowledged_us: time(state.acknowledged_us.load(Relaxed)),
        now_us: clock::realtime_us(),
        backlog_bytes: counters.outbox_bytes.load(Relaxed) + counters.spool_bytes.load(Relaxed),
    }
}
