//! Part of a report about call stacks: where the time went.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use polymeter_store::StoreError;
use polymeter_store::reader::{JobRow, Read};

use super::activities::activities;
use super::functions::{FunctionTime, functions};
use super::imbalance::{OwnTimes, imbalance};
use super::missing::Missing;
use super::profile::{Choice, Profile, Spans, ranks};
use super::tree::{Tree, Weight};
use crate::model::{FunctionReport, FunctionShare, FunctionSpread, Report, StackPart, StackReport};
use crate::phases::joined;

/// Functions with the most time of their own, and further ones with the most time in all.
const FUNCTIONS: usize = 15;
const CALLERS: usize = 10;

const OF_PART: usize = 3;

/// Phases, by name, and their occurrences, each of which is a query.
const PHASES: usize = 20;
const PHASE_SPANS: usize = 200;

const NODES: usize = 100;

/// Processes with the most time, and the least percentage of it that each has.
const PROCESSES: usize = 50;
const PROCESS_PERCENT: f64 = 1.0;

pub(crate) fn add_to(reader: &mut dyn Read, job: &JobRow, report: &mut Report) -> Result<(), StoreError> {
    let spans = vec![(None, job.sampled_ns.clone())];
    let mut profile =
        Profile::read(reader, job.job_key, &Choice { spans: spans.clone(), ..Choice::default() })?;
    let metrics: BTreeSet<String> = profile.metrics.iter().cloned().collect();
    let phases = spans_of_phases(report);
    let ranks = if metrics.is_empty() { Default::default() } else { ranks(reader, job.job_key)? };
    for metric in metrics {
        if profile.metric != metric {
            let choice = Choice { metric: Some(metric), spans: spans.clone(), ..Choice::default() };
            profile = Profile::read(reader, job.job_key, &choice)?;
        }
        profile.ranks.clone_from(&ranks);
        let missing = Missing::read(reader, job.job_key, &profile.metric, &spans)?;
        let mut of_metric = summary(&profile, missing);
        for (name, spans) in &phases {
            let metric = Some(profile.metric.clone());
            let of_phase = Profile::read(
                reader,
                job.job_key,
                &Choice { metric, spans: spans.clone(), ..Choice::default() },
            )?;
            of_metric.phases.extend(part(name, &of_phase.tree()));
        }
        report.call_stacks.push(of_metric);
    }
    Ok(())
}

fn length_us(spans: &[(&str, Range<i64>)]) -> i64 {
    spans.iter().fold(0, |sum, (_, span)| sum.saturating_add(span.end.saturating_sub(span.start)))
}

/// Spans of the phases that took longest, by name.
fn spans_of_phases(report: &Report) -> Vec<(String, Spans)> {
    let mut by_name: BTreeMap<&str, Vec<(&str, Range<i64>)>> = BTreeMap::new();
    for phase in report.phases.iter().take(PHASE_SPANS) {
        if let Some((begin_us, end_us)) = phase.begin_us.zip(phase.end_us) {
            by_name.entry(&phase.name).or_default().push((&phase.node, begin_us..end_us));
        }
    }
    let mut longest: Vec<_> = by_name.into_iter().collect();
    longest.sort_by_key(|(_, spans)| std::cmp::Reverse(length_us(spans)));
    longest.truncate(PHASES);
    longest
        .into_iter()
        .map(|(name, spans): (&str, Vec<(&str, Range<i64>)>)| {
            (
                name.to_owned(),
                joined(spans).into_iter().map(|(node, span_ns)| (Some(node), span_ns)).collect(),
            )
        })
        .collect()
}

/// Part of a report about the samples of a profile, without phases.
pub fn summary(profile: &Profile, missing: Missing) -> StackReport {
    let tree = profile.tree();
    let total = tree.total();
    let sums = &profile.intervals;
    let mut of_nodes: BTreeMap<&str, Tree> = BTreeMap::new();
    let mut of_processes = Vec::new();
    for ((node, process), of_process) in profile.trees() {
        of_nodes.entry(node).or_default().merge(&of_process);
        let is_much = 100.0 * of_process.total().share_of(total) >= PROCESS_PERCENT;
        if let Some(process) = process.filter(|_| is_much && of_processes.len() < PROCESSES) {
            let rank = profile.ranks.get(&(node.clone(), process));
            let rank = rank.map_or_else(String::new, |rank| format!(", rank {rank}"));
            of_processes.extend(part(&format!("{process} on {node}{rank}"), &of_process));
        }
    }
    let mut nodes: Vec<StackPart> = of_nodes
        .into_iter()
        .filter_map(|(node, mut tree)| {
            tree.add_up();
            part(node, &tree)
        })
        .collect();
    nodes.sort_by(|one, other| other.time_s.total_cmp(&one.time_s));
    nodes.truncate(NODES);
    let (by_process, times) = (profile.own_times(), functions(&tree));
    StackReport {
        metric: profile.metric.clone(),
        time_s: total.seconds(),
        samples: total.samples,
        period_s: Weight { samples: 0, time_us: sums.period_us }.seconds(),
        processes: profile.processes(),
        without_symbol_percent: 100.0 * tree.without_symbol().share_of(total),
        lost: sums.lost,
        unread: missing.unread,
        not_stored: missing.not_stored,
        unexplained: missing.unexplained,
        throttled: sums.throttled,
        cut: sums.cut,
        activities: activities(&tree),
        imbalance: imbalance(&by_process, &times),
        functions: function_reports(&by_process, &times, total),
        phases: Vec::new(),
        nodes,
        by_process: of_processes,
    }
}

/// Says what is missing in the samples that others are compared with.
pub fn remarks_before(profile: &Profile, missing: Missing) -> Vec<String> {
    let remarks = summary(profile, missing).remarks().into_iter();
    remarks.map(|remark| format!("before: {remark}")).collect()
}

/// Functions with the most time of their own, and those with the most time in all.
fn function_reports(
    by_process: &OwnTimes<'_>,
    all: &[FunctionTime<'_>],
    total: Weight,
) -> Vec<FunctionReport> {
    let mut chosen: Vec<&FunctionTime<'_>> =
        all.iter().filter(|time| time.own.samples > 0).take(FUNCTIONS).collect();
    let mut by_total: Vec<&FunctionTime<'_>> =
        all.iter().filter(|time| !chosen.iter().any(|known| known.function == time.function)).collect();
    by_total.sort_by_key(|time| std::cmp::Reverse(time.total.time_us));
    chosen.extend(by_total.into_iter().take(CALLERS));
    chosen
        .into_iter()
        .map(|time| FunctionReport {
            function: time.function.label(),
            module: time.function.module.clone(),
            self_s: time.own.seconds(),
            self_percent: 100.0 * time.own.share_of(total),
            total_s: time.total.seconds(),
            total_percent: 100.0 * time.total.share_of(total),
            processes: spread(by_process, time),
        })
        .collect()
}

/// Least and most time of a function itself among the processes; none with fewer than two.
fn spread(by_process: &OwnTimes<'_>, time: &FunctionTime<'_>) -> Option<FunctionSpread> {
    let times = || {
        let own_us = by_process.values().map(|times| times.get(time.function).copied().unwrap_or_default());
        own_us.map(|own| own.time_us).zip(by_process.keys())
    };
    let ((least_us, _), (most_us, (node, process))) = times().min().zip(times().max())?;
    let seconds = |time_us| Weight { samples: 0, time_us }.seconds();
    (by_process.len() > 1 && time.own.samples > 0).then(|| FunctionSpread {
        least_s: seconds(least_us),
        most_s: seconds(most_us),
        most_node: node.clone(),
        most_process: *process,
    })
}

/// Functions with the most time of their own in a part of the job; none without samples.
fn part(name: &str, tree: &Tree) -> Option<StackPart> {
    let total = tree.total();
    let functions = functions(tree)
        .iter()
        .take(OF_PART)
        .filter(|time| time.own.samples > 0)
        .map(|time| FunctionShare {
            function: time.function.label(),
            module: time.function.module.clone(),
            self_percent: 100.0 * time.own.share_of(total),
        })
        .collect();
    (total.samples > 0).then(|| StackPart { name: name.to_owned(), time_s: total.seconds(), functions })
}
