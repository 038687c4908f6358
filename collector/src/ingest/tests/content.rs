//! Tests of frames whose content cannot be stored unchanged.

use std::sync::Arc;
use std::time::Duration;

use polymeter_proto::batch::{Column, Shape};
use polymeter_proto::ledger::{Event, LedgerEntry, Mark, MarkKind};
use polymeter_proto::name::MetricName;
use polymeter_proto::period::Period;
use polymeter_proto::series::{
    JobHandle, Labels, MetricDescriptor, MetricId, SeriesDescriptor, SeriesId, SessionId, ShapeDescriptor,
    ShapeId, Unit,
};
use polymeter_proto::stacks::{
    FunctionDescriptor, FunctionId, FunctionName, StackCount, StackDescriptor, StackId, StackInterval,
};
use polymeter_proto::wire::dictionary::{Announced, Entry};
use polymeter_proto::wire::message::{ToAgent, ToCollector};
use polymeter_store::accepted::{Accepted, LossReason, LossRecord, OutOfRange, STACK_DEPTH};

use super::super::session::RequestTimes;
use super::super::{
    DeviceAgents, Ingest, OutOfRangePolicy, ServedSeries, TimeRange, UserSeries, Verdict, times,
};
use super::{
    NOW_US, SESSION, accepted, at, descriptor, frame, metric, opened, peer, rejected, rejection, shape,
    source,
};
use crate::limits;

#[test]
fn ids_that_are_never_announced_become_a_loss() {
    let (mut ingest, _, frames) = opened(1, 2);
    for round in 0..u64::from(limits::DICTIONARIES_PER_FRAME) {
        let now = at(round * 2000);
        assert!(
            matches!(
                ingest.frame(&peer(), frames[1].clone(), now),
                Verdict::Ask(ToAgent::NeedDictionary { .. })
            ),
            "{round}"
        );
        let dictionary =
            ToCollector::Dictionary { session: SESSION, entries: vec![Entry::Session(descriptor())] };
        assert!(matches!(ingest.message(&peer(), dictionary, now), Verdict::Nothing));
    }
    // The content that does not need them is stored.
    let mut last = frames[1].clone();
    let tally = |job| LedgerEntry { job, source: "x".try_into().unwrap(), tally: Default::default() };
    last.ledger = vec![tally(Some(JobHandle(9))), tally(None)];
    last.events = vec![Event::JobEnded { job: JobHandle(9), at_us: NOW_US }];
    let lost = rejected(ingest.frame(&peer(), last, at(60_000)));
    assert_eq!((lost.sequence, lost.losses[0].samples, lost.losses[0].reason), (2, 1, LossReason::UnknownId));
    assert_eq!((lost.tallies.len(), lost.job_ends.len(), lost.rows()), (1, 0, 0));
}

fn interval(stacks: &[u32]) -> StackInterval {
    StackInterval {
        metric: MetricId(1),
        job: JobHandle(1),
        begin_us: NOW_US,
        end_us: NOW_US + 1_000_000,
        period: Period::SECOND,
        counts: stacks
            .iter()
            .map(|stack| StackCount { process: 1, stack: StackId(*stack), count: 5 })
            .collect(),
        lost: 2,
        throttled: 0,
        cut: 0,
        unresolved: 0,
    }
}

fn entry_of_stack(id: u32, parent: Option<u32>) -> Entry {
    let parent = parent.map(StackId);
    Entry::Stack(StackId(id), StackDescriptor { parent, function: FunctionId(4) })
}

/// Entries of a function of job 1 and of two stacks. In the second one the function called itself.
fn entries_of_stacks() -> Vec<Entry> {
    let function = FunctionDescriptor { job: JobHandle(1), name: FunctionName::escaped(b"f"), module: None };
    vec![Entry::Function(FunctionId(4), function), entry_of_stack(1, None), entry_of_stack(2, Some(1))]
}

#[test]
fn counts_of_stacks_that_are_never_announced_become_a_loss() {
    let (mut ingest, mut announced, frames) = opened(0, 1);
    accepted(ingest.frame(&peer(), frames[0].clone(), at(0)));
    let mut next = frame(2, &shape(2, Some(1)), &[NOW_US], &mut announced, &[]);
    next.dictionary.extend(entries_of_stacks());
    next.stacks = vec![interval(&[1, 2, 1])];
    let of_known = accepted(ingest.frame(&peer(), next, at(0)));
    let [block] = of_known.stacks.as_slice() else { panic!("{:?}", of_known.stacks) };
    assert_eq!((block.count(), block.samples.len(), block.lost), (15, 2, 2), "the same stack counts once");
    let mut next = frame(3, &shape(2, Some(1)), &[NOW_US], &mut announced, &[]);
    next.stacks = vec![interval(&[1, 9]), StackInterval { job: JobHandle(8), ..interval(&[1]) }];
    for round in 0..u64::from(limits::DICTIONARIES_PER_FRAME) {
        let now = at(60_000 + round * 2000);
        let asked = ingest.frame(&peer(), next.clone(), now);
        assert!(matches!(asked, Verdict::Ask(ToAgent::NeedDictionary { .. })), "{asked:?}");
        let dictionary = ToCollector::Dictionary { session: SESSION, entries: Vec::new() };
        assert!(matches!(ingest.message(&peer(), dictionary, now), Verdict::Nothing));
    }
    let rest = rejected(ingest.frame(&peer(), next, at(90_000)));
    assert_eq!((rest.stacks.len(), rest.stacks[0].count()), (1, 5));
    let losses: Vec<_> =
        rest.losses.iter().map(|loss| (loss.line.is_some(), loss.samples, loss.reason)).collect();
    assert_eq!(losses, [(true, 5, LossReason::UnknownId), (false, 5, LossReason::UnknownId)]);
}

#[test]
fn contradictory_and_untimely_stacks_are_a_loss() {
    let (mut ingest, mut announced, frames) = opened(0, 1);
    accepted(ingest.frame(&peer(), frames[0].clone(), at(0)));
    let mut next = frame(2, &shape(2, Some(1)), &[NOW_US], &mut announced, &[]);
    next.dictionary.extend(entries_of_stacks());
    let untimely = StackInterval { begin_us: 0, end_us: 1, ..interval(&[1]) };
    next.stacks = vec![untimely, interval(&[2])];
    let stored = accepted(ingest.frame(&peer(), next, at(0)));
    assert_eq!(
        (stored.stacks.len(), stored.losses[0].samples, stored.losses[0].reason),
        (1, 5, LossReason::Clock)
    );
    // A stack of another job, and a stack without end.
    let mut next = frame(3, &shape(3, Some(2)), &[NOW_US], &mut announced, &[]);
    next.stacks = vec![StackInterval { job: JobHandle(2), ..interval(&[1]) }];
    let lost = rejected(ingest.frame(&peer(), next, at(0)));
    let of_stacks = lost.losses.iter().find(|loss| loss.samples == 5).unwrap();
    assert_eq!((of_stacks.reason, of_stacks.line.is_some()), (LossReason::Contradiction, true));
    let mut next = frame(4, &shape(3, Some(2)), &[], &mut announced, &[]);
    let deeper = (3..2 * u32::try_from(STACK_DEPTH).unwrap()).map(|id| {
        let parent = Some(StackId(id - 1));
        Entry::Stack(StackId(id), StackDescriptor { parent, function: FunctionId(4) })
    });
    next.dictionary.extend(deeper);
    rejected(ingest.frame(&peer(), next, at(0)));
}

#[test]
fn contradictions_are_a_loss_and_the_session_continues() {
    let (mut ingest, mut announced, frames) = opened(0, 1);
    accepted(ingest.frame(&peer(), frames[0].clone(), at(0)));
    let mut columns = frame(2, &shape(1, None), &[NOW_US], &mut announced, &[]);
    columns.blocks[0].shape_columns = 2;
    assert_eq!(rejected(ingest.frame(&peer(), columns, at(0))).losses[0].reason, LossReason::Contradiction);
    let mut redefined = frame(3, &shape(1, None), &[NOW_US], &mut announced, &[]);
    redefined.dictionary =
        vec![Entry::Metric(MetricId(1), MetricDescriptor { unit: Unit::Bytes, ..metric() })];
    assert_eq!(rejected(ingest.frame(&peer(), redefined, at(0))).losses[0].samples, 1);
    accepted(ingest.frame(&peer(), frame(4, &shape(2, None), &[NOW_US], &mut announced, &[]), at(0)));
}

fn mark(job: Option<JobHandle>) -> Event {
    let name = "phase".try_into().unwrap();
    Event::Mark(Mark { at_us: NOW_US, job, name, kind: MarkKind::Instant, by: None })
}

/// Marks of the node, and of a job whose handle no dictionary has.
fn marks(of_node: u64, of_unknown_job: u64) -> Vec<Event> {
    let of_node = (0..of_node).map(|_| mark(None));
    of_node.chain((0..of_unknown_job).map(|_| mark(Some(JobHandle(99))))).collect()
}

#[test]
fn events_that_go_with_a_rejected_frame_are_counted() {
    let (mut ingest, mut announced, frames) = opened(0, 1);
    accepted(ingest.frame(&peer(), frames[0].clone(), at(0)));
    let mut contradictory = frame(2, &shape(1, None), &[NOW_US], &mut announced, &[]);
    contradictory.blocks[0].shape_columns = 2;
    contradictory.events = marks(3, 0);
    let (kept, events) = rejection(ingest.frame(&peer(), contradictory, at(0)));
    assert_eq!((kept.events(), events), (0, 3));
    // Of unknown jobs, after the agent could announce them.
    let mut unknown = frame(3, &shape(1, None), &[NOW_US], &mut announced, &[]);
    unknown.events = marks(2, 4);
    for attempt in 0..limits::DICTIONARIES_PER_FRAME {
        let time = at(10_000 * u64::from(attempt + 1));
        assert!(matches!(ingest.frame(&peer(), unknown.clone(), time), Verdict::Ask(_)));
        let dictionary = ToCollector::Dictionary { session: SESSION, entries: Vec::new() };
        assert!(matches!(ingest.message(&peer(), dictionary, time), Verdict::Nothing));
    }
    let (kept, events) = rejection(ingest.frame(&peer(), unknown, at(60_000)));
    assert_eq!((kept.events(), events), (2, 4));
}

#[test]
fn requests_the_dictionary_for_entries_with_unknown_references() {
    let (mut ingest, mut announced, frames) = opened(0, 1);
    accepted(ingest.frame(&peer(), frames[0].clone(), at(0)));
    let series = SeriesDescriptor { metric: MetricId(9), job: None, labels: Labels::default() };
    let shape_of_nothing =
        ShapeDescriptor { source: source(), inner_period: None, series: vec![SeriesId(9)] };
    for entry in [Entry::Series(SeriesId(9), series), Entry::Shape(ShapeId(9), shape_of_nothing)] {
        let mut next = frame(2, &shape(1, None), &[NOW_US], &mut announced, &[]);
        next.dictionary.push(entry);
        ingest.sessions.get_mut(&SESSION).unwrap().requested = RequestTimes::default();
        assert!(matches!(ingest.frame(&peer(), next, at(0)), Verdict::Ask(ToAgent::NeedDictionary { .. })));
    }
}

fn user_shape(id: usize, job: u32, metric: usize) -> Arc<Shape> {
    let id = u32::try_from(id).unwrap();
    let name = MetricName::new(format!("user.m{metric}")).unwrap();
    let mut shape = (*shape(id, Some(job))).clone();
    shape.columns[0].metric = (MetricId(id), MetricDescriptor { name, ..super::metric() });
    Arc::new(shape)
}

#[test]
fn the_series_of_users_are_bounded_for_each_job_over_sessions() {
    let (mut ingest, mut bound) = (Ingest::default(), UserSeries::default());
    let max = limits::USER_SERIES_OF_JOB;
    let mut of_session = |session: u64, shapes: Vec<Arc<Shape>>| -> Vec<Accepted> {
        let session = SessionId(session);
        let mut announced = Announced::default();
        assert!(ingest.open(session, &peer(), 0, at(0)));
        let numbered = (1..).zip(shapes);
        let frames = numbered.map(|(number, shape)| {
            let mut frame = frame(number, &shape, &[NOW_US], &mut announced, &[]);
            frame.session = session;
            let mut accepted = accepted(ingest.frame(&peer(), frame, at(0)));
            bound.enforce(&mut accepted);
            accepted
        });
        frames.collect()
    };
    // The handles of two sessions stand for the same job.
    let first = of_session(7, (1..=max).map(|number| user_shape(number, 1, number)).collect());
    assert!(first.iter().all(|accepted| accepted.losses.is_empty()));
    let again = (1..=3).map(|number| user_shape(number, 2, number + max - 2));
    let second = of_session(8, again.chain([shape(9, Some(2))]).collect());
    let of_users = vec![(1, LossReason::UserSeries)];
    let lost: Vec<Vec<_>> = second
        .iter()
        .map(|accepted| accepted.losses.iter().map(|loss| (loss.samples, loss.reason)).collect())
        .collect();
    assert_eq!(lost, [vec![], vec![], of_users, vec![]]);
    assert_eq!(
        second.iter().map(Accepted::rows).collect::<Vec<_>>(),
        [1, 1, 0, 1],
        "known ones and others are stored"
    );
}

fn column_of_region(number: usize) -> Column {
    let label = ("region".to_owned(), number.to_string());
    let name = MetricName::new("region.time").unwrap();
    Column {
        series: SeriesId(u32::try_from(number).unwrap()),
        metric: (MetricId(1), MetricDescriptor { name, ..super::metric() }),
        labels: Labels::new(vec![label]).unwrap(),
    }
}

#[test]
fn the_series_of_regions_have_a_bound_of_their_own() {
    const COLUMNS: usize = 4096;
    let (mut ingest, mut bound) = (Ingest::default(), UserSeries::default());
    let mut announced = Announced::default();
    assert!(ingest.open(SESSION, &peer(), 0, at(0)));
    let mut lost = Vec::new();
    for number in 0..limits::REGION_SERIES_OF_JOB / COLUMNS + 1 {
        let mut shape = (*shape(u32::try_from(number).unwrap(), Some(1))).clone();
        shape.columns = (number * COLUMNS..(number + 1) * COLUMNS).map(column_of_region).collect();
        let frame = frame(number as u64 + 1, &Arc::new(shape), &[NOW_US], &mut announced, &[]);
        let mut accepted = accepted(ingest.frame(&peer(), frame, at(0)));
        bound.enforce(&mut accepted);
        lost.extend(accepted.losses.iter().map(|loss| (number, loss.samples, loss.reason)));
    }
    assert_eq!(lost, [(10, COLUMNS as u64, LossReason::UserSeries)]);
}

/// Shape of a device with a column for each of these labels.
fn device_shape(job: Option<u32>, labels: &[&[(&str, &str)]]) -> Arc<Shape> {
    let column = |(number, labels): (u32, &&[(&str, &str)])| {
        let pairs = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let name = MetricName::new("device.pdu3.power").unwrap();
        let metric = MetricDescriptor { name, ..super::metric() };
        Column {
            series: SeriesId(number),
            metric: (MetricId(2), metric),
            labels: Labels::new(pairs).unwrap(),
        }
    };
    let columns = (20..).zip(labels).map(column).collect();
    Arc::new(Shape { columns, ..(*shape(2, job)).clone() })
}

#[test]
fn values_about_other_nodes_are_of_agents_that_may_state_them() {
    let labels: [&[(&str, &str)]; 4] =
        [&[("node", "n2")], &[("outlet", "1")], &[("node", "n1")], &[("node", "*"), ("outlet", "2")]];
    let ago_us = [NOW_US - 2, NOW_US - 1, NOW_US];
    // The agent's node is n1.
    for (agents, had_jobs, may_serve) in [
        (DeviceAgents::default(), Some(false), true),
        (DeviceAgents::default(), Some(true), false),
        (DeviceAgents::default(), None, false),
        (DeviceAgents::from_iter(["n?".to_owned()]), Some(true), true),
        (DeviceAgents::from_iter(["devices*".to_owned()]), Some(false), false),
    ] {
        let (mut ingest, mut announced) = (Ingest::default(), Announced::default());
        assert!(ingest.open(SESSION, &peer(), 0, at(0)));
        let frame = frame(1, &device_shape(None, &labels), &ago_us, &mut announced, &[]);
        let mut accepted = accepted(ingest.frame(&peer(), frame, at(0)));
        let mut served = ServedSeries::new(agents.clone());
        let asks = agents == DeviceAgents::default();
        assert_eq!(served.unknown(&accepted, Duration::ZERO).had_jobs, asks);
        had_jobs.iter().for_each(|had| served.learn_had_jobs(&descriptor().node, *had, Duration::ZERO));
        let enforced = served.enforce(&mut accepted);
        let lost: Vec<_> = accepted.losses.iter().map(|loss| (loss.samples, loss.reason)).collect();
        let left: Vec<_> = accepted.samples[0].series.iter().map(|one| one.labels.to_string()).collect();
        if may_serve {
            assert_eq!((enforced.refused, lost, left.len()), (None, vec![], 4));
        } else {
            assert_eq!((enforced.refused.as_deref(), lost), (Some("n2"), vec![(6, LossReason::ServedNode)]));
            assert_eq!(left, ["outlet=1", "node=n1"]);
        }
        assert_eq!(accepted.samples[0].values, vec![42; 3 * left.len()]);
    }
}

#[test]
fn a_first_job_makes_a_node_one_that_states_nothing_about_others() {
    let (mut ingest, mut announced) = (Ingest::default(), Announced::default());
    assert!(ingest.open(SESSION, &peer(), 0, at(0)));
    let mut served = ServedSeries::new(DeviceAgents::default());
    served.learn_had_jobs(&descriptor().node, false, Duration::ZERO);
    let mut refused = Vec::new();
    for (sequence, has_job) in [(1, false), (2, true), (3, false)] {
        let shape = if has_job { shape(1, Some(1)) } else { device_shape(None, &[&[("node", "n2")]]) };
        let frame = frame(sequence, &shape, &[NOW_US], &mut announced, &[]);
        let mut accepted = accepted(ingest.frame(&peer(), frame, at(0)));
        refused.push(served.enforce(&mut accepted).refused.is_some());
    }
    assert_eq!(refused, [false, false, true]);
}

/// Now, and just too old, just too far ahead, and just not too old.
fn on_both_sides_of(range: TimeRange) -> [i64; 4] {
    let (age_us, skew_us) = (times::micros(range.max_age), times::micros(range.max_skew));
    [NOW_US, NOW_US - age_us - 1, NOW_US + skew_us + 1, NOW_US - age_us]
}

#[test]
fn samples_out_of_range_are_counted_as_lost() {
    let (mut ingest, mut announced, _) = opened(0, 0);
    let times = on_both_sides_of(TimeRange::default());
    let kept = accepted(ingest.frame(&peer(), frame(1, &shape(1, None), &times, &mut announced, &[]), at(0)));
    assert_eq!(kept.samples[0].times_us, [times[0], times[3]]);
    assert_eq!(kept.rows(), 2);
    let [LossRecord { samples: 2, reason: LossReason::Clock, span_us, line: Some(of) }] = &kept.losses[..]
    else {
        panic!("{:?}", kept.losses)
    };
    assert_eq!((*span_us, of.source.as_str()), ((times[1], times[2]), source().as_str()));
    assert_eq!((kept.out_of_range.unwrap().samples, kept.rows_quarantined()), (2, 0));
}

#[test]
fn samples_out_of_range_are_quarantined_if_configured() {
    let (max_age, max_skew) = (Duration::from_secs(3600), Duration::from_secs(60));
    let range = TimeRange { max_age, max_skew, out_of_range: OutOfRangePolicy::Quarantine };
    let (mut ingest, mut announced) = (Ingest::new(range), Announced::default());
    assert!(ingest.open(SESSION, &peer(), 0, at(0)));
    let times = on_both_sides_of(range);
    let with_job = frame(1, &shape(1, Some(3)), &times, &mut announced, &[]);
    let kept = accepted(ingest.frame(&peer(), with_job, at(0)));
    assert_eq!(kept.samples[0].times_us, [times[0], times[3]]);
    assert_eq!(kept.quarantined[0].times_us, [times[1], times[2]]);
    assert_eq!((kept.rows(), kept.rows_quarantined(), kept.losses.len()), (2, 2, 0));
    assert_eq!(kept.out_of_range, Some(OutOfRange { samples: 2, span_us: (times[1], times[2]) }));
    assert_eq!(
        (kept.quarantined[0].line.source.as_str(), kept.quarantined[0].line.job.is_some()),
        (source().as_str(), true)
    );
    // If the store refuses the frame, they are lost with the others.
    assert_eq!(kept.as_loss(LossReason::StoreRefused).losses[0].samples, 4);
    // Times that no clock has, and times that every clock can have.
    let nonsense = frame(2, &shape(1, Some(3)), &[i64::MIN, i64::MAX], &mut announced, &[]);
    let kept = accepted(ingest.frame(&peer(), nonsense, at(0)));
    assert_eq!((kept.rows(), kept.rows_quarantined()), (0, 2));
    let sound = frame(3, &shape(1, Some(3)), &[NOW_US], &mut announced, &[]);
    let kept = accepted(ingest.frame(&peer(), sound, at(0)));
    assert_eq!((kept.rows(), kept.rows_quarantined(), kept.out_of_range), (1, 0, None));
}

/// Entries with which a dictionary is too large: series with long labels.
fn too_many_entries() -> Vec<Entry> {
    use polymeter_proto::limits::{LABEL_VALUE_BYTES, LABELS};
    let pairs = (0..LABELS).map(|number| (format!("k{number}"), "v".repeat(LABEL_VALUE_BYTES)));
    let labels = Labels::new(pairs.collect()).unwrap();
    let series = limits::SESSION_DICTIONARY_BYTES / labels.identity().len();
    let descriptor = SeriesDescriptor { metric: MetricId(1), job: None, labels };
    let ids = 100..100 + u32::try_from(series).unwrap();
    ids.map(|id| Entry::Series(SeriesId(id), descriptor.clone())).collect()
}

#[test]
fn a_dictionary_without_room_is_asked_for_once_and_costs_only_what_it_does_not_define() {
    let (mut ingest, mut announced, frames) = opened(0, 1);
    accepted(ingest.frame(&peer(), frames[0].clone(), at(0)));
    let mut next = frame(2, &shape(1, None), &[NOW_US], &mut announced, &[]);
    next.dictionary.extend(too_many_entries());
    let asked = ingest.frame(&peer(), next.clone(), at(0));
    assert!(matches!(asked, Verdict::Ask(ToAgent::NeedDictionary { .. })), "{asked:?}");
    assert!(ingest.dictionary_bytes <= limits::SESSION_DICTIONARY_BYTES);
    // The frames under way wait for the answer.
    assert!(matches!(ingest.frame(&peer(), next.clone(), at(100)), Verdict::Nothing));
    let mut entries = announced.all(&descriptor());
    entries.extend(too_many_entries());
    let dictionary = ToCollector::Dictionary { session: SESSION, entries };
    assert!(matches!(ingest.message(&peer(), dictionary, at(200)), Verdict::Nothing));
    let stored = rejected(ingest.frame(&peer(), next, at(300)));
    assert_eq!((stored.samples.len(), stored.losses.len()), (1, 0), "its samples are of known series");
    // Nobody is asked again, also for what has no room.
    let mut unknown = frame(3, &shape(2, None), &[NOW_US], &mut announced, &[]);
    unknown.dictionary = too_many_entries();
    let lost = rejected(ingest.frame(&peer(), unknown, at(400)));
    assert_eq!((lost.samples.len(), lost.losses[0].reason), (0, LossReason::UnknownId));
    let late = at(400 + u64::try_from(limits::DICTIONARY_RETRY.as_millis()).unwrap());
    let mut unknown = frame(4, &shape(2, None), &[NOW_US], &mut announced, &[]);
    unknown.dictionary = too_many_entries();
    assert!(matches!(ingest.frame(&peer(), unknown, late), Verdict::Ask(_)));
    assert!(ingest.dictionary_bytes < limits::SESSION_DICTIONARY_BYTES / 2, "it begins anew");
}
