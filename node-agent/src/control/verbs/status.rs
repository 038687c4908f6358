//! `status`: the state of the agent, of the node and of the jobs.

use std::sync::atomic::Ordering::Relaxed;

use polymeter_proto::control::{
    AgentCounts, Answer, CollectorStatus, Refusal, SourceStatus, StatusReport, StatusRequest, SubjectStatus,
};
use polymeter_proto::ledger::Tally;

use super::Execute;
use crate::clock;
use crate::control::request_handler::RequestHandler;
use crate::counters::Counters;
use crate::principal::Principal;
use crate::request::{JobView, SourceView};
use crate::sources::agent_self::resident_bytes;

/// Version of the control language.
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

pub(super) async fn report(handler: &RequestHandler<'_>) -> Result<Answer, Refusal> {
    let view = handler.view().await?;
    let context = handler.context;
    let subjects: Vec<SubjectStatus> = view.subjects.iter().map(subject).collect();
    let sees_all = context.rights.borrow().can_see(handler.principal, None);
    let all = counts(&context.counters);
    Ok(Answer::Status(StatusReport {
        version: VERSION,
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        session: context.session.to_string(),
        counts: if sees_all { all } else { counts_of(&subjects, all) },
        collector: collector(&context.counters),
        subjects,
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

/// Totals for a user who sees only these subjects: nothing that jobs of others change, except for the traffic
/// and the cost of the agent, which everybody can see in /proc.
fn counts_of(subjects: &[SubjectStatus], all: AgentCounts) -> AgentCounts {
    let mut tally = Tally::default();
    subjects.iter().flat_map(|subject| &subject.sources).for_each(|source| tally.add(&source.tally));
    let Tally { due, taken, late, missed, absent, dropped, not_kept: _ } = tally;
    let jobs = subjects.iter().filter(|subject| subject.job.is_some()).count() as u64;
    let (jobs_left_out, descriptors, descriptor_limit) = (None, None, None);
    let own =
        AgentCounts { due, taken, late, missed, absent, dropped, refused: 0, unknown_lines: 0, jobs, ..all };
    AgentCounts { jobs_left_out, descriptors, descriptor_limit, ..own }
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
        jobs_left_out: Some(counters.jobs_left_out.load(Relaxed)),
        descriptors: Some(counters.descriptors.load(Relaxed)),
        descriptor_limit: Some(counters.descriptor_limit.load(Relaxed)),
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
        now_us: clock::steady_us(),
        backlog_bytes: counters.outbox_bytes.load(Relaxed) + counters.spool_bytes.load(Relaxed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_learns_nothing_about_jobs_of_others() {
        let sources = [(10, 1), (5, 0)].map(|(due, late)| SourceStatus {
            name: "cpu.stat".to_owned(),
            tally: Tally { due, taken: due, late, ..Tally::default() },
            reads: due,
            read_mean_ns: 0,
            read_max_ns: 0,
        });
        let own = SubjectStatus {
            job: Some("7".to_owned()),
            uid: Some(1000),
            user: None,
            started_us: None,
            cgroups: Vec::new(),
            sources: sources.into(),
            unavailable: Vec::new(),
        };
        // The agent with few jobs of others, and with many.
        let seen = [0, 4000].map(|others| {
            let all = AgentCounts {
                due: 15 + others,
                taken: 15 + others,
                refused: others,
                jobs: 1 + others,
                jobs_left_out: Some(others),
                descriptors: Some(50 + others),
                descriptor_limit: Some(1024),
                frames_sent: 3,
                ..AgentCounts::default()
            };
            counts_of(std::slice::from_ref(&own), all)
        });
        assert_eq!(seen[0], seen[1]);
        let [of_user, _] = seen;
        assert_eq!((of_user.due, of_user.taken, of_user.late, of_user.jobs), (15, 15, 1, 1));
        assert_eq!((of_user.jobs_left_out, of_user.descriptors, of_user.frames_sent), (None, None, 3));
    }
}
