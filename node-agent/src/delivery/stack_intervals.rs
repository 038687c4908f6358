//! The call stacks of an interval in the form of the protocol: with the ids of the session, of which the new
//! ones are announced.

use polymeter_proto::limits;
use polymeter_proto::period::Period;
use polymeter_proto::series::JobHandle;
use polymeter_proto::stacks::{
    FunctionDescriptor, FunctionId, StackCount, StackDescriptor, StackId, StackInterval,
};
use polymeter_proto::wire::dictionary::{Announced, Entry};

use crate::lanes::StackRecord;

/// Appends the intervals of a record to `intervals`, and the entries that they need to `entries`.
///
/// Where there is no room for a stack, its samples belong to the nearest caller that is known, and count as
/// cut. Where there is none for the outermost function, they are lost.
pub(super) fn announce_stacks(
    announced: &mut Announced,
    record: &StackRecord,
    entries: &mut Vec<Entry>,
    intervals: &mut Vec<StackInterval>,
) {
    let (Some(job), Some(column)) = (&record.shape.job, record.shape.columns.first()) else { return };
    let (metric, descriptor) = &column.metric;
    announced.announce_metric(*metric, descriptor, entries);
    announced.announce_job(job.handle, &job.descriptor, entries);
    let profile = &record.profile;
    let known = known_stacks(announced, record, job.handle, entries);
    let (mut lost, mut cut) = (profile.lost, profile.cut);
    let mut counts = Vec::with_capacity(profile.counts.len());
    for (process, stack, count) in &profile.counts {
        match known.get(*stack as usize) {
            Some((Some(stack), is_whole)) => {
                cut = cut.saturating_add(if *is_whole { 0 } else { *count });
                counts.push(StackCount { process: *process, stack: *stack, count: *count });
            }
            Some((None, _)) | None => lost = lost.saturating_add(*count),
        }
    }
    let interval = |counts: &[StackCount]| StackInterval {
        metric: *metric,
        job: job.handle,
        begin_us: profile.span_us.0,
        end_us: profile.span_us.1,
        period: profile.period.unwrap_or(Period::SECOND),
        counts: counts.to_vec(),
        lost: 0,
        throttled: 0,
        cut: 0,
        unresolved: 0,
    };
    let mut parts = counts.chunks(limits::STACK_COUNTS);
    let first = interval(parts.next().unwrap_or_default());
    let (throttled, unresolved) = (profile.throttled, profile.unresolved);
    intervals.push(StackInterval { lost, throttled, cut, unresolved, ..first });
    intervals.extend(parts.map(interval));
}

/// Id of each stack of the record, or of its nearest caller that is known, and true for its own.
fn known_stacks(
    announced: &mut Announced,
    record: &StackRecord,
    job: JobHandle,
    entries: &mut Vec<Entry>,
) -> Vec<(Option<StackId>, bool)> {
    let functions: Vec<Option<FunctionId>> = record
        .profile
        .functions
        .iter()
        .map(|function| {
            let name = function.name.as_deref().cloned();
            let function = FunctionDescriptor { job, name, module: function.module.clone() };
            announced.announce_function(&function, entries)
        })
        .collect();
    let mut known: Vec<(Option<StackId>, bool)> = Vec::with_capacity(record.profile.stacks.len());
    for (caller, function) in &record.profile.stacks {
        let caller = caller.map(|caller| known.get(caller as usize).copied().unwrap_or((None, false)));
        let (parent, is_whole) = caller.unwrap_or((None, true));
        let own = functions.get(*function as usize).copied().flatten().filter(|_| is_whole);
        let own =
            own.and_then(|function| announced.announce_stack(StackDescriptor { parent, function }, entries));
        known.push(own.map_or((parent, false), |own| (Some(own), true)));
    }
    known
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use polymeter_proto::batch::{Column, Job, Shape};
    use polymeter_proto::name::MetricName;
    use polymeter_proto::series::{
        JobDescriptor, Kind, Labels, MetricDescriptor, MetricId, Number, SeriesId, ShapeId, Unit,
    };
    use polymeter_proto::stacks::FunctionName;

    use super::*;
    use crate::sources::{Function, StackProfile};

    fn record(
        functions: usize,
        stacks: Vec<(Option<u32>, u32)>,
        counts: Vec<(u32, u32, u64)>,
    ) -> StackRecord {
        let descriptor = JobDescriptor {
            job_id: "1".try_into().unwrap(),
            cluster: None,
            owner_uid: None,
            owner: None,
            started_us: 0,
        };
        let metric = MetricDescriptor {
            name: MetricName::new("stacks.cpu").unwrap(),
            unit: Unit::Count,
            kind: Kind::Counter,
            number: Number::Unsigned,
        };
        let shape = Shape {
            id: ShapeId(1),
            job: Some(Arc::new(Job { handle: JobHandle(1), descriptor })),
            source: "stacks".try_into().unwrap(),
            period: Period::SECOND,
            window: None,
            columns: vec![Column {
                series: SeriesId(1),
                metric: (MetricId(3), metric),
                labels: Labels::default(),
            }],
        };
        let functions = (0..functions)
            .map(|number| Function {
                name: FunctionName::escaped(format!("f{number}").as_bytes()).map(Arc::new),
                module: None,
            })
            .collect();
        let profile = StackProfile {
            span_us: (5, 9),
            period: Some(Period::TEN_MILLISECONDS),
            functions,
            stacks,
            counts,
            ranks: Vec::new(),
            lost: 4,
            throttled: 2,
            cut: 1,
            unresolved: 3,
        };
        StackRecord { shape: Arc::new(shape), profile: Box::new(profile) }
    }

    #[test]
    fn names_travel_once_and_counts_each_time() {
        let (mut announced, mut entries, mut intervals) = (Announced::default(), Vec::new(), Vec::new());
        let record = record(2, vec![(None, 0), (Some(0), 1)], vec![(7, 1, 30), (7, 0, 2)]);
        announce_stacks(&mut announced, &record, &mut entries, &mut intervals);
        assert_eq!(entries.len(), 6, "metric, job, functions, stacks: {entries:?}");
        announce_stacks(&mut announced, &record, &mut entries, &mut intervals);
        assert_eq!((entries.len(), intervals.len()), (6, 2));
        assert_eq!(intervals[0], intervals[1]);
        let StackInterval { lost, throttled, cut, unresolved, period, begin_us, end_us, .. } = intervals[0];
        assert_eq!((lost, throttled, cut, unresolved, begin_us, end_us), (4, 2, 1, 3, 5, 9));
        assert_eq!((intervals[0].samples(), period), (32, Period::TEN_MILLISECONDS));
    }

    #[test]
    fn samples_without_room_go_to_the_caller_or_are_lost() {
        let functions = limits::JOB_FUNCTIONS + 2;
        let callees = (0..u32::try_from(functions).unwrap()).map(|function| (Some(0), function));
        let outer = u32::try_from(functions - 1).unwrap();
        let stacks: Vec<_> = std::iter::once((None, 0)).chain(callees).chain([(None, outer)]).collect();
        let last = u32::try_from(stacks.len() - 1).unwrap();
        let counts = (0..=last).map(|stack| (7, stack, 10)).collect::<Vec<_>>();
        let (mut announced, mut entries, mut intervals) = (Announced::default(), Vec::new(), Vec::new());
        announce_stacks(&mut announced, &record(functions, stacks, counts), &mut entries, &mut intervals);
        assert!(
            intervals.len() > 1 && intervals.iter().all(|part| part.counts.len() <= limits::STACK_COUNTS)
        );
        let all: u64 = intervals.iter().map(StackInterval::samples).sum();
        assert_eq!(all, u64::from(last) * 10);
        assert_eq!((intervals[0].lost, intervals[0].cut, intervals[1].lost), (4 + 10, 1 + 20, 0));
    }
}
