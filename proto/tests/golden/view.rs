//! Contents of frames and messages as JSON.

use std::fmt;

use polymeter_proto::ledger::{
    Event, Firing, JobDetailsUpdate, JobFactsUpdate, JobOwner, KeptInterval, LedgerEntry, Mark, PlanChange,
    RequestRefused, Tally,
};
use polymeter_proto::period::Sampling;
use polymeter_proto::run::Run;
use polymeter_proto::series::{Identifier, JobHandle, Roofs, ShapeId};
use polymeter_proto::stacks::StackInterval;
use polymeter_proto::wire::dictionary::Entry;
use polymeter_proto::wire::frame::{Block, BlockHistogram, BlockWindows, Frame};
use polymeter_proto::wire::message::{SkipReason, ToAgent, ToCollector};

use super::json::Json;

fn text(value: impl fmt::Display) -> Json {
    Json::Text(value.to_string())
}

fn optional<T>(value: Option<T>, json: impl FnOnce(T) -> Json) -> Json {
    value.map_or(Json::Null, json)
}

fn list<T>(values: impl IntoIterator<Item = T>, json: impl FnMut(T) -> Json) -> Json {
    Json::List(values.into_iter().map(json).collect())
}

fn object<'a>(members: impl IntoIterator<Item = (&'a str, Json)>) -> Json {
    Json::Object(members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn count(value: usize) -> Json {
    Json::Number(i128::try_from(value).unwrap_or(i128::MAX))
}

pub(crate) fn of_frame(frame: &Frame) -> Json {
    object([
        ("is", text("frame")),
        ("session", text(frame.session)),
        ("sequence", frame.sequence.into()),
        ("dictionary", list(&frame.dictionary, of_entry)),
        ("blocks", list(&frame.blocks, of_block)),
        ("ledger", list(&frame.ledger, of_ledger)),
        ("shape_tallies", list(&frame.shape_tallies, of_shape_tally)),
        ("events", list(&frame.events, of_event)),
        ("stacks", list(&frame.stacks, of_stacks)),
        ("is_kept", frame.is_kept.into()),
    ])
}

fn of_block(block: &Block) -> Json {
    object([
        ("shape", block.shape.0.into()),
        ("shape_columns", count(block.shape_columns)),
        ("columns", list(&block.columns, |column| count(*column))),
        ("times_us", list(&block.times_us, |time_us| (*time_us).into())),
        ("values", of_columns(&block.values, block)),
        ("windows", optional(block.windows.as_ref(), |windows| of_windows(windows, block))),
    ])
}

fn of_columns(values: &[u64], block: &Block) -> Json {
    list(values.chunks_exact(block.times_us.len()), |values| list(values, |bits| (*bits).into()))
}

fn of_windows(windows: &BlockWindows, block: &Block) -> Json {
    object([
        ("counts", of_columns(&windows.counts, block)),
        ("min", of_columns(&windows.min, block)),
        ("max", of_columns(&windows.max, block)),
        ("sum", of_columns(&windows.sum, block)),
        ("histograms", list(&windows.histograms, of_histogram)),
    ])
}

fn of_histogram(histogram: &BlockHistogram) -> Json {
    object([
        ("tick", count(histogram.tick)),
        ("position", count(histogram.position)),
        ("counts", list(&histogram.counts, |(bucket, count)| list([u64::from(*bucket), *count], Json::from))),
    ])
}

fn of_roofs(roofs: Roofs) -> Json {
    object([
        ("memory_bytes_per_s", roofs.memory_bytes_per_s.into()),
        ("double_flop_per_s", roofs.double_flop_per_s.into()),
        ("single_flop_per_s", roofs.single_flop_per_s.into()),
    ])
}

fn of_entry(entry: &Entry) -> Json {
    match entry {
        Entry::Session(session) => object([
            ("is", text("session")),
            ("node", text(&session.node)),
            ("agent_version", text(&session.agent_version)),
            ("started_us", session.started_us.into()),
            ("cpus", optional(session.processors.cpus, Json::from)),
            ("cores", optional(session.processors.cores, Json::from)),
            ("roofs", optional(session.processors.roofs, of_roofs)),
        ]),
        Entry::Metric(id, metric) => object([
            ("is", text("metric")),
            ("id", id.0.into()),
            ("name", text(&metric.name)),
            ("unit", text(metric.unit.as_str())),
            ("kind", text(metric.kind.as_str())),
            ("number", text(format!("{:?}", metric.number).to_lowercase())),
        ]),
        Entry::Job(handle, job) => object([
            ("is", text("job")),
            ("handle", handle.0.into()),
            ("job_id", text(&job.job_id)),
            ("cluster", of_name(job.cluster.as_ref())),
            ("owner_uid", optional(job.owner_uid, Json::from)),
            ("owner", of_name(job.owner.as_ref())),
            ("started_us", job.started_us.into()),
        ]),
        Entry::Series(id, series) => object([
            ("is", text("series")),
            ("id", id.0.into()),
            ("metric", series.metric.0.into()),
            ("job", of_job(series.job)),
            ("labels", list(series.labels.iter(), |(key, value)| list([key, value], text))),
        ]),
        Entry::Shape(id, shape) => object([
            ("is", text("shape")),
            ("id", id.0.into()),
            ("source", text(&shape.source)),
            ("inner_period_us", optional(shape.inner_period, |period| period.as_micros().into())),
            ("series", list(&shape.series, |series| series.0.into())),
        ]),
        Entry::Function(id, function) => object([
            ("is", text("function")),
            ("id", id.0.into()),
            ("job", function.job.0.into()),
            ("name", optional(function.name.as_ref(), |name| text(name.as_str()))),
            ("module", of_name(function.module.as_ref())),
        ]),
        Entry::Stack(id, stack) => object([
            ("is", text("stack")),
            ("id", id.0.into()),
            ("parent", optional(stack.parent, |parent| parent.0.into())),
            ("function", stack.function.0.into()),
        ]),
    }
}

fn of_stacks(interval: &StackInterval) -> Json {
    object([
        ("metric", interval.metric.0.into()),
        ("job", interval.job.0.into()),
        ("begin_us", interval.begin_us.into()),
        ("end_us", interval.end_us.into()),
        ("period_us", interval.period.as_micros().into()),
        (
            "counts",
            list(&interval.counts, |count| {
                object([
                    ("process", count.process.into()),
                    ("stack", count.stack.0.into()),
                    ("count", count.count.into()),
                ])
            }),
        ),
        ("lost", interval.lost.into()),
        ("throttled", interval.throttled.into()),
        ("cut", interval.cut.into()),
        ("unresolved", interval.unresolved.into()),
    ])
}

fn of_name(name: Option<&Identifier>) -> Json {
    optional(name, text)
}

fn of_job(job: Option<JobHandle>) -> Json {
    optional(job, |job| job.0.into())
}

fn of_ledger(entry: &LedgerEntry) -> Json {
    let of_source = [("job", of_job(entry.job)), ("source", text(&entry.source))];
    object(of_source.into_iter().chain(of_tally(&entry.tally)))
}

fn of_shape_tally((shape, tally): &(ShapeId, Tally)) -> Json {
    object(std::iter::once(("shape", shape.0.into())).chain(of_tally(tally)))
}

fn of_tally(tally: &Tally) -> [(&'static str, Json); 7] {
    [
        ("due", tally.due.into()),
        ("taken", tally.taken.into()),
        ("late", tally.late.into()),
        ("missed", tally.missed.into()),
        ("absent", tally.absent.into()),
        ("dropped", tally.dropped.into()),
        ("not_kept", tally.not_kept.into()),
    ]
}

fn of_sampling(sampling: Sampling) -> Json {
    object([
        ("period_us", sampling.period.as_micros().into()),
        ("window_us", optional(sampling.window, |window| window.as_micros().into())),
    ])
}

fn of_plan_change(change: &PlanChange) -> Json {
    let PlanChange { at_us, job, level, metric, old, new, cause, by, until_us } = change;
    object([
        ("is", text("plan_change")),
        ("at_us", (*at_us).into()),
        ("job", of_job(*job)),
        ("level", optional(*level, |level| text(level.as_str()))),
        ("metric", text(metric)),
        ("old", optional(*old, of_sampling)),
        ("new", optional(*new, of_sampling)),
        ("cause", text(cause.as_str())),
        ("by", of_name(by.as_ref())),
        ("until_us", optional(*until_us, Json::from)),
    ])
}

fn of_event(event: &Event) -> Json {
    match event {
        Event::PlanChange(change) => of_plan_change(change),
        Event::JobEnded { job, at_us } => {
            object([("is", text("job_ended")), ("job", job.0.into()), ("at_us", (*at_us).into())])
        }
        Event::Mark(Mark { at_us, job, name, kind, by }) => object([
            ("is", text("mark")),
            ("at_us", (*at_us).into()),
            ("job", of_job(*job)),
            ("name", text(name.as_str())),
            ("kind", text(kind.as_str())),
            ("by", of_name(by.as_ref())),
        ]),
        Event::JobFacts(JobFactsUpdate { job, is_over, facts }) => object([
            ("is", text("job_facts")),
            ("job", job.0.into()),
            ("is_over", (*is_over).into()),
            ("account", of_name(facts.account.as_ref())),
            ("queue", of_name(facts.queue.as_ref())),
            ("nodes", of_name(facts.nodes.as_ref())),
            ("cores", optional(facts.cores, Json::from)),
            ("state", of_name(facts.state.as_ref())),
            ("exit_code", optional(facts.exit_code, Json::from)),
            ("exit_signal", optional(facts.exit_signal, Json::from)),
            ("unread", optional(facts.unread.as_ref(), text)),
        ]),
        Event::JobDetails(JobDetailsUpdate { job, details }) => object([
            ("is", text("job_details")),
            ("job", job.0.into()),
            ("name", optional(details.name.as_ref(), text)),
            ("display_id", of_name(details.display_id.as_ref())),
            ("time_limit_s", optional(details.time_limit_s, Json::from)),
            ("memory_bytes", optional(details.memory_bytes, Json::from)),
            ("gpus", optional(details.gpus, Json::from)),
            ("restarts", optional(details.restarts, Json::from)),
            ("run", optional(details.run.as_deref(), run)),
            ("scheduler", of_name(details.scheduler.as_ref())),
            ("node_cores", optional(details.node_cores, Json::from)),
            ("node_gpus", optional(details.node_gpus, Json::from)),
        ]),
        Event::JobOwner(JobOwner { job, uid, name }) => object([
            ("is", text("job_owner")),
            ("job", job.0.into()),
            ("uid", optional(*uid, Json::from)),
            ("name", of_name(name.as_ref())),
        ]),
        Event::Kept(KeptInterval { job, begin_us, end_us, trigger, reason, samples }) => object([
            ("is", text("kept")),
            ("job", job.0.into()),
            ("begin_us", (*begin_us).into()),
            ("end_us", (*end_us).into()),
            ("trigger", (*trigger).into()),
            ("reason", text(reason)),
            ("samples", (*samples).into()),
        ]),
        Event::Fired(firing) => of_firing(firing),
        Event::RequestRefused(RequestRefused { at_us, job, request, period, by, reason }) => object([
            ("is", text("request_refused")),
            ("at_us", (*at_us).into()),
            ("job", job.0.into()),
            ("request", text(request)),
            ("period", optional(*period, of_sampling)),
            ("by", of_name(by.as_ref())),
            ("reason", text(reason)),
        ]),
        Event::SessionEnded { at_us } => object([("is", text("session_ended")), ("at_us", (*at_us).into())]),
    }
}

fn of_firing(firing: &Firing) -> Json {
    object([
        ("is", text("fired")),
        ("job", firing.job.0.into()),
        ("trigger", firing.trigger.into()),
        ("rule", text(&firing.rule)),
        ("by", of_name(firing.by.as_ref())),
        ("at_us", firing.at_us.into()),
        ("keeps_us", optional(firing.keeps_us, |(begin_us, end_us)| list([begin_us, end_us], Json::from))),
        ("notice", u64::from(firing.notice).into()),
        ("why", text(&firing.why)),
        ("actions", text(&firing.actions)),
    ])
}

pub(crate) fn of_message_to_collector(message: &ToCollector) -> Json {
    match message {
        ToCollector::Dictionary { session, entries } => object([
            ("is", text("dictionary")),
            ("session", text(session)),
            ("entries", list(entries, of_entry)),
        ]),
        ToCollector::Skipped { session, first, last, reason, span_us, lost } => object([
            ("is", text("skipped")),
            ("session", text(session)),
            ("first", (*first).into()),
            ("last", (*last).into()),
            (
                "reason",
                text(match reason {
                    SkipReason::OutboxFull => "outbox_full",
                    SkipReason::AlreadyAcknowledged => "already_acknowledged",
                    SkipReason::Refused => "refused",
                    SkipReason::Damaged => "damaged",
                }),
            ),
            ("span_us", list([span_us.0, span_us.1], Json::from)),
            (
                "lost",
                list(lost, |lost| {
                    object([
                        ("job", of_job(lost.job)),
                        ("source", text(&lost.source)),
                        ("samples", lost.samples.into()),
                    ])
                }),
            ),
        ]),
        ToCollector::Answer { session, request, line } => object([
            ("is", text("answer")),
            ("session", text(session)),
            ("request", (*request).into()),
            ("line", text(line.as_str())),
        ]),
    }
}

pub(crate) fn of_message_to_agent(message: &ToAgent) -> Json {
    match message {
        ToAgent::Ack { session, through } => {
            object([("is", text("ack")), ("session", text(session)), ("through", (*through).into())])
        }
        ToAgent::Resend { session, from } => {
            object([("is", text("resend")), ("session", text(session)), ("from", (*from).into())])
        }
        ToAgent::NeedDictionary { session } => {
            object([("is", text("need_dictionary")), ("session", text(session))])
        }
        ToAgent::Refused { reason, frame } => object([
            ("is", text("refused")),
            ("reason", text(reason)),
            (
                "frame",
                frame.map_or(Json::Null, |(session, sequence)| {
                    object([("session", text(session)), ("sequence", sequence.into())])
                }),
            ),
        ]),
        ToAgent::Request { session, request, uid, at_us, line } => object([
            ("is", text("request")),
            ("session", text(session)),
            ("request", (*request).into()),
            ("uid", (*uid).into()),
            ("at_us", (*at_us).into()),
            ("line", text(line.as_str())),
        ]),
    }
}

fn run(run: &Run) -> Json {
    object([
        ("command", list(&run.command, text)),
        ("is_cut", run.is_cut.into()),
        ("directory", optional(run.directory.as_ref(), text)),
        ("host", optional(run.host.as_ref(), text)),
        ("environment", list(&run.environment, |(name, value)| Json::List(vec![text(name), text(value)]))),
    ])
}
