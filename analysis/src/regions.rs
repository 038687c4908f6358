//! Regions of instrumented programs: the sums over processes, and their spread. Pure.

use std::collections::{BTreeMap, BTreeSet};

use polymeter_proto::units::{self, to_f64};

use crate::model::{RegionReport, RegionSpread, SeriesReport};

/// Beginning of the names of their metrics, whose counters begin at 0 with their process.
pub const METRICS: &str = "region.";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RegionLabels<'a> {
    process: &'a str,
    rank: Option<&'a str>,
    region: &'a str,
}

impl<'a> RegionLabels<'a> {
    /// Parses labels, which are sorted by key: the name of a region, which may contain anything, is the last.
    fn parse(labels: &'a str) -> Option<Self> {
        let (process, others) = labels.strip_prefix("process=")?.split_once(',')?;
        let (rank, others) = match others.strip_prefix("rank=") {
            Some(ranked) => ranked.split_once(',').map(|(rank, others)| (Some(rank), others))?,
            None => (None, others),
        };
        Some(Self { process, rank, region: others.strip_prefix("region=")? })
    }
}

/// One process, or all processes of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place<'a> {
    Rank(u64),
    Process(&'a str, &'a str),
}

impl Place<'_> {
    fn name(self) -> String {
        match self {
            Self::Rank(rank) => format!("rank {rank}"),
            Self::Process(node, process) => format!("process {process} on {node}"),
        }
    }
}

#[derive(Debug, Default)]
struct InProcess {
    entries: f64,
    time_ns: f64,
    self_ns: f64,
    thread_ns: f64,
    threads: f64,
}

/// Grouped by node and process, and by rank.
#[derive(Debug, Default)]
struct Sums<'a> {
    processes: BTreeMap<(&'a str, &'a str), InProcess>,
    self_s: BTreeMap<Place<'a>, f64>,
}

/// Computes the regions of a job that ran for `wall_s`, those with the most time of their own first.
pub(crate) fn regions(series: &[SeriesReport], wall_s: f64) -> Vec<RegionReport> {
    let mut by_region: BTreeMap<&str, Sums<'_>> = BTreeMap::new();
    let mut places = BTreeSet::new();
    for one in series {
        let Some(quantity) = one.metric.strip_prefix(METRICS) else { continue };
        let Some(labels) = RegionLabels::parse(&one.labels) else { continue };
        let rank = labels.rank.and_then(|rank| rank.parse().ok());
        let place = rank.map_or(Place::Process(&one.node, labels.process), Place::Rank);
        places.insert(place);
        let sums = by_region.entry(labels.region).or_default();
        let process = sums.processes.entry((&one.node, labels.process)).or_default();
        let growth = one.growth.unwrap_or_default();
        match quantity {
            "entries" => process.entries = growth,
            "time" => process.time_ns = growth,
            "self_time" => {
                process.self_ns = growth;
                *sums.self_s.entry(place).or_default() += growth / 1e9;
            }
            "thread_time" => process.thread_ns = growth,
            "threads" => process.threads = one.max.unwrap_or_default(),
            _ => {}
        }
    }
    let mut regions: Vec<RegionReport> = by_region
        .iter()
        .map(|(region, sums): (&&str, &Sums<'_>)| report(region, sums, &places, wall_s))
        .collect();
    regions.sort_by(|one, other| other.self_s.total_cmp(&one.self_s));
    regions
}

fn report(region: &str, sums: &Sums<'_>, places: &BTreeSet<Place<'_>>, wall_s: f64) -> RegionReport {
    let sum = |value: fn(&InProcess) -> f64| sums.processes.values().map(value).sum::<f64>();
    let (time_s, threads) = (sum(|process| process.time_ns) / 1e9, sum(|process| process.threads));
    RegionReport {
        region: region.to_owned(),
        entries: units::whole(sum(|process| process.entries)),
        time_s,
        self_s: sum(|process| process.self_ns) / 1e9,
        run_percent: (wall_s > 0.0 && threads > 0.0).then(|| 100.0 * time_s / (wall_s * threads)),
        processes: sums.processes.len() as u64,
        threads: units::whole(threads),
        thread_imbalance: sums
            .processes
            .values()
            .filter_map(|process| {
                let mean_ns = process.time_ns / process.threads;
                (process.threads > 1.0 && mean_ns > 0.0).then(|| process.thread_ns / mean_ns)
            })
            .max_by(f64::total_cmp),
        ranks: spread(&sums.self_s, places),
    }
}

/// Includes places without an entry; none for a single place.
fn spread(self_s: &BTreeMap<Place<'_>, f64>, places: &BTreeSet<Place<'_>>) -> Option<RegionSpread> {
    if places.len() < 2 {
        return None;
    }
    let times = || places.iter().map(|place| (place, self_s.get(place).copied().unwrap_or_default()));
    let (most, most_s) = times().max_by(|one, other| one.1.total_cmp(&other.1))?;
    let count = places.len() as u64;
    Some(RegionSpread {
        count,
        least_s: times().map(|(_, time_s)| time_s).fold(f64::INFINITY, f64::min),
        mean_s: times().map(|(_, time_s)| time_s).sum::<f64>() / to_f64(count),
        most_s,
        most: most.name(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Series of a region in a process: entries, seconds, own seconds, those of the longest thread, and
    /// threads.
    fn process(
        labels: &str,
        node: &str,
        [entries, time, own, thread, threads]: [f64; 5],
    ) -> Vec<SeriesReport> {
        let series = |metric: &str, growth: Option<f64>, max| SeriesReport {
            metric: format!("region.{metric}"),
            labels: labels.to_owned(),
            node: node.to_owned(),
            growth,
            max,
            ..SeriesReport::default()
        };
        vec![
            series("entries", Some(entries), None),
            series("time", Some(time * 1e9), None),
            series("self_time", Some(own * 1e9), None),
            series("thread_time", Some(thread * 1e9), None),
            series("threads", None, Some(threads)),
        ]
    }

    #[test]
    fn sums_and_spreads_are_those_of_processes_and_ranks() {
        let series = [
            process("process=7,rank=0,region=solve,r=1", "n1", [10.0, 8.0, 6.0, 4.0, 4.0]),
            // The same process id on another node, and two processes of one rank.
            process("process=7,rank=1,region=solve,r=1", "n2", [10.0, 2.0, 1.0, 1.0, 2.0]),
            process("process=8,rank=1,region=solve,r=1", "n2", [10.0, 2.0, 1.0, 2.0, 1.0]),
            process("process=7,rank=0,region=io", "n1", [1.0, 9.0, 9.0, 9.0, 1.0]),
        ]
        .concat();
        let [io, solve] = regions(&series, 10.0).try_into().unwrap();
        assert_eq!(
            (solve.region.as_str(), solve.entries, solve.processes, solve.threads),
            ("solve,r=1", 30, 3, 7)
        );
        assert_eq!((solve.time_s, solve.self_s, solve.thread_imbalance), (12.0, 8.0, Some(2.0)));
        assert!((solve.run_percent.unwrap() - 100.0 * 12.0 / 70.0).abs() < 1e-9);
        let spread = solve.ranks.unwrap();
        assert_eq!((spread.count, spread.least_s, spread.mean_s, spread.most_s), (2, 2.0, 4.0, 6.0));
        assert_eq!(spread.most, "rank 0");
        let spread = io.ranks.unwrap();
        assert_eq!((spread.least_s, spread.mean_s), (0.0, 4.5), "rank 1 does not enter it");
        assert_eq!((io.thread_imbalance, io.run_percent), (None, Some(90.0)));
    }

    #[test]
    fn processes_stand_for_ranks_where_there_are_none() {
        let one = process("process=7,region=a", "n1", [1.0; 5]);
        assert_eq!(regions(&one, 0.0)[0].ranks, None);
        let two = [one, process("process=9,region=a", "n1", [3.0; 5])].concat();
        assert_eq!(regions(&two, 4.0)[0].ranks.as_ref().unwrap().most, "process 9 on n1");
        assert!(regions(&[], 1.0).is_empty());
    }
}
