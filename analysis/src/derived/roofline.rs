//! Roofline of a job: its operations and bytes, by phase, against the roofs of its nodes. Pure.
//!
//! The counters of a node's memory do not tell jobs apart. Therefore only nodes count that the job had alone,
//! with all of their cores.

use std::collections::BTreeMap;
use std::ops::Range;

use polymeter_proto::series::Roofs;
use polymeter_proto::units;
use polymeter_store::reader::JobNodeRow;

use super::{Computable, NODES_MAX, all, common};
use crate::model::{LeftOutNodes, NodeReport, Report, Roof, Roofline, RooflinePart};
use crate::phases::joined;

const OPERATIONS: &str = "perf.flops";
const BANDWIDTH: &str = "node.dram.bandwidth";

/// Share of a node's cores with which a job has all of them: sites reserve some for the system.
const ALL_CORES: f64 = 0.9;

struct Measured<'a> {
    node: &'a str,
    roofs: Roofs,
    operations: &'a Computable,
    bandwidth: &'a Computable,
    /// Time for which both are known.
    span_ns: Range<i64>,
}

#[derive(Default)]
struct Sums {
    nodes: u64,
    time_s: f64,
    flop: f64,
    bytes: f64,
    /// What the roofs would permit in this time.
    memory_bytes: f64,
    double_flop: f64,
    single_flop: f64,
}

/// Adds the roofline to the report of a job whose floating-point operations were sampled.
pub(crate) fn add_to(report: &mut Report, rows: &[JobNodeRow]) {
    if !report.derived.iter().any(|derived| derived.metric == OPERATIONS) {
        return;
    }
    let (computables, _) = all(report);
    let (mut measured, mut left_out) = (Vec::new(), BTreeMap::<String, Vec<&str>>::new());
    for node in &report.by_node {
        let row = rows.iter().find(|row| row.node == node.node);
        match of_node(report, row, node, &computables) {
            Ok(found) => measured.push(found),
            Err(reason) => left_out.entry(reason).or_default().push(&node.node),
        }
    }
    let whole = Sums::of(&measured, |node| vec![node.span_ns.clone()]);
    let mut roofline = Roofline {
        memory_bytes_per_s: whole.per_s(whole.memory_bytes),
        double_flop_per_s: whole.per_s(whole.double_flop),
        single_flop_per_s: whole.per_s(whole.single_flop),
        parts: phases(report, &measured),
        left_out: left_out.into_iter().filter_map(left_out_nodes).collect(),
    };
    roofline.parts.sort_by(|one, other| other.time_s.total_cmp(&one.time_s));
    roofline.parts.splice(0..0, whole.part(None));
    report.roofline = Some(roofline);
}

fn left_out_nodes((reason, nodes): (String, Vec<&str>)) -> Option<LeftOutNodes> {
    let node = (*nodes.first()?).to_owned();
    Some(LeftOutNodes { reason, nodes: nodes.len() as u64, node })
}

/// Figures of a node, or the reason why they are unknown or not those of the job.
fn of_node<'a>(
    report: &Report,
    row: Option<&JobNodeRow>,
    node: &'a NodeReport,
    computables: &'a [Computable],
) -> Result<Measured<'a>, String> {
    if row.is_none_or(|row| row.is_shared) {
        return Err("other jobs ran there, and the counters of the memory do not tell jobs apart".to_owned());
    }
    if let (Some(cores), Some(of_job)) = (node.cores, node.job_cores)
        && units::to_f64(of_job) < ALL_CORES * units::to_f64(cores)
    {
        return Err(format!("the job has {of_job} of {cores} cores there, and not the whole node"));
    }
    let roofs = node.roofs.ok_or("the roofs are not known: `polymeter calibrate` measures them")?;
    let of = |metric: &str| {
        let found = computables.iter().find(|one| one.metric == metric && one.node == node.node);
        found.ok_or_else(|| reason(report, metric, &node.node))
    };
    let (operations, bandwidth) = (of(OPERATIONS)?, of(BANDWIDTH)?);
    let span_ns =
        common([&operations.span_ns, &bandwidth.span_ns].map(|span| Some(span.clone())).into_iter());
    let span_ns =
        span_ns.ok_or_else(|| format!("{OPERATIONS} and {BANDWIDTH} were not sampled at the same time"))?;
    Ok(Measured { node: &node.node, roofs, operations, bandwidth, span_ns })
}

fn reason(report: &Report, metric: &str, node: &str) -> String {
    let mut derived = report.derived.iter();
    let known = derived.find(|derived| derived.metric == metric && derived.node == node);
    match known.and_then(|derived| derived.reason.as_deref()) {
        Some(reason) => format!("{metric}: {reason}"),
        None if metric == BANDWIDTH && report.by_node.len() > NODES_MAX => {
            format!("{metric} is not read for jobs on more than {NODES_MAX} nodes")
        }
        None => format!("{metric} was not sampled"),
    }
}

fn phases(report: &Report, measured: &[Measured<'_>]) -> Vec<RooflinePart> {
    let mut by_name: BTreeMap<&str, Vec<(&str, Range<i64>)>> = BTreeMap::new();
    for phase in &report.phases {
        if let (Some(begin_us), Some(end_us)) = (phase.begin_us, phase.end_us) {
            by_name.entry(&phase.name).or_default().push((&phase.node, begin_us..end_us));
        }
    }
    by_name
        .into_iter()
        .filter_map(|(name, spans)| {
            let spans: Vec<(String, Range<i64>)> = joined(spans);
            Sums::of(measured, |node: &Measured<'_>| {
                let own = spans.iter().filter(|(of, _)| of == node.node).map(|(_, span)| Some(span.clone()));
                own.filter_map(|span| common([span, Some(node.span_ns.clone())].into_iter())).collect()
            })
            .part(Some(name))
        })
        .collect()
}

impl Sums {
    /// Sums up nodes in some times of each.
    fn of(measured: &[Measured<'_>], spans_ns: impl Fn(&Measured<'_>) -> Vec<Range<i64>>) -> Self {
        let mut sums = Self::default();
        for node in measured {
            let spans_ns = spans_ns(node);
            let lengths = spans_ns.iter().map(|span| units::seconds_between(span.start, span.end));
            let time_s: f64 = lengths.sum();
            let rates = node.operations.value(&spans_ns).zip(node.bandwidth.value(&spans_ns));
            let Some((flop_per_s, bytes_per_s)) = rates.filter(|_| time_s > 0.0) else { continue };
            sums.nodes += 1;
            sums.time_s += time_s;
            sums.flop += flop_per_s * time_s;
            sums.bytes += bytes_per_s * time_s;
            sums.memory_bytes += units::to_f64(node.roofs.memory_bytes_per_s) * time_s;
            sums.double_flop += units::to_f64(node.roofs.double_flop_per_s) * time_s;
            sums.single_flop += units::to_f64(node.roofs.single_flop_per_s) * time_s;
        }
        sums
    }

    fn per_s(&self, amount: f64) -> Option<f64> {
        (self.time_s > 0.0).then(|| amount / self.time_s)
    }

    /// None without nodes. At an intensity, the lower roof bounds: it is the one of which the larger share
    /// was reached.
    fn part(&self, phase: Option<&str>) -> Option<RooflinePart> {
        let (of_memory, of_arithmetic) = (self.bytes / self.memory_bytes, self.flop / self.double_flop);
        let bound = if of_memory >= of_arithmetic { Roof::Memory } else { Roof::Arithmetic };
        Some(RooflinePart {
            phase: phase.map(str::to_owned),
            nodes: self.nodes,
            time_s: self.time_s,
            flop_per_s: self.per_s(self.flop)?,
            bytes_per_s: self.per_s(self.bytes)?,
            flop_per_byte: (self.bytes > 0.0).then(|| self.flop / self.bytes),
            bound,
            roof_percent: 100.0 * of_memory.max(of_arithmetic),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{near, sampled};
    use super::*;
    use crate::derived;
    use crate::model::Phase;
    use crate::testing::report;

    const ROOFS: Roofs =
        Roofs { memory_bytes_per_s: 100_000, double_flop_per_s: 1_000_000, single_flop_per_s: 2_000_000 };

    const TIMES: [f64; 3] = [0.0, 10.0, 30.0];

    /// Node of AMD, with operations and commands of the memory per second in the first 10 s and in the 20 s
    /// after them.
    fn node(name: &str, operations: [f64; 2], reads: [f64; 2]) -> Vec<crate::model::SeriesReport> {
        let series = |metric: &str, rates: [f64; 2]| {
            let totals = [0.0, rates[0] * 10.0, rates[0] * 10.0 + rates[1] * 20.0];
            sampled(metric, "", name, &TIMES.into_iter().zip(totals).collect::<Vec<_>>())
        };
        vec![
            series("perf.event.fp_ret_sse_avx_ops.all", operations),
            series("node.pmu.amd_umc.umc_cas_cmd.rd", reads),
            series("node.pmu.amd_umc.umc_cas_cmd.wr", [0.0, 0.0]),
        ]
    }

    fn row(node: &str, is_shared: bool) -> JobNodeRow {
        JobNodeRow { node: node.to_owned(), started_ns: 0, ended_ns: None, is_shared, clock_offset_us: None }
    }

    fn phase(name: &str, node: &str, begin_s: i64, end_s: i64) -> Phase {
        Phase {
            name: name.to_owned(),
            node: node.to_owned(),
            begin_us: Some(begin_s * 1_000_000),
            end_us: Some(end_s * 1_000_000),
            ..Phase::default()
        }
    }

    /// Computes it for a job whose nodes have roofs.
    fn roofline(
        series: Vec<crate::model::SeriesReport>,
        rows: &[JobNodeRow],
        change: impl FnOnce(&mut Report),
    ) -> Option<Roofline> {
        let mut report = report(60, 8, series);
        report.by_node.iter_mut().for_each(|node| node.roofs = Some(ROOFS));
        change(&mut report);
        derived::add_to(&mut report);
        add_to(&mut report, rows);
        report.roofline
    }

    #[test]
    fn phases_lie_under_the_roof_that_bounds_them() {
        let series =
            [node("n1", [50_000.0, 600_000.0], [1250.0, 125.0]), node("n2", [0.0, 300_000.0], [625.0, 0.0])];
        let rows = [row("n1", false), row("n2", false)];
        let found = roofline(series.concat(), &rows, |report| {
            report.phases = vec![
                phase("stream", "n1", 0, 10),
                phase("stream", "n2", 0, 10),
                phase("solve", "n1", 10, 20),
                phase("solve", "n1", 15, 40),
                phase("solve", "n2", 10, 30),
                phase("elsewhere", "n3", 0, 30),
                phase("before", "n1", -9, 0),
            ];
        });
        let Roofline { memory_bytes_per_s, double_flop_per_s, single_flop_per_s, parts, left_out } =
            found.unwrap();
        assert_eq!((memory_bytes_per_s, double_flop_per_s), (Some(100_000.0), Some(1_000_000.0)));
        assert_eq!((single_flop_per_s, left_out), (Some(2_000_000.0), Vec::new()));
        let [whole, solve, stream] = &parts[..] else { panic!("{parts:?}") };
        let names = [&whole.phase, &solve.phase, &stream.phase].map(Option::as_deref);
        assert_eq!(names, [None, Some("solve"), Some("stream")]);

        // 64 bytes are moved by a command: n1 has 80,000 and 8,000 bytes per second, n2 40,000 and 0.
        assert_eq!((stream.nodes, stream.time_s, stream.bound), (2, 20.0, Roof::Memory));
        assert!(near(Some(stream.bytes_per_s), 60_000.0) && near(Some(stream.flop_per_s), 25_000.0));
        assert!(near(stream.flop_per_byte, 25.0 / 60.0) && near(Some(stream.roof_percent), 60.0));

        assert_eq!((solve.nodes, solve.time_s, solve.bound), (2, 40.0, Roof::Arithmetic));
        assert!(near(Some(solve.flop_per_s), 450_000.0) && near(Some(solve.roof_percent), 45.0));
        // What the roofs permit at this intensity is the peak, which the memory could feed.
        let attainable = (solve.flop_per_byte.unwrap() * 100_000.0).min(1_000_000.0);
        assert!(near(Some(100.0 * solve.flop_per_s / attainable), solve.roof_percent), "{solve:?}");

        let flop = 50_000.0 * 10.0 + 600_000.0 * 20.0 + 300_000.0 * 20.0;
        let bytes = 80_000.0 * 10.0 + 8_000.0 * 20.0 + 40_000.0 * 10.0;
        assert_eq!(whole.time_s, 60.0);
        assert!(near(Some(whole.flop_per_s), flop / 60.0) && near(whole.flop_per_byte, flop / bytes));
    }

    #[test]
    fn nodes_that_do_not_count_have_a_reason() {
        let names = ["n1", "n2", "n3", "n4", "n5"];
        let mut series: Vec<_> = names.iter().flat_map(|name| node(name, [1.0, 1.0], [1.0, 1.0])).collect();
        series.retain(|one| one.node != "n5" || !one.metric.ends_with(".wr"));
        let rows = names.map(|name| row(name, name == "n1"));
        let found = roofline(series, &rows, |report| {
            (report.by_node[1].cores, report.by_node[1].job_cores) = (Some(64), Some(4));
            report.by_node[2].roofs = None;
            // Two cores are reserved for the system.
            (report.by_node[3].cores, report.by_node[3].job_cores) = (Some(64), Some(62));
        });
        let found = found.unwrap();
        let of = |name: &str| {
            let left_out = found.left_out.iter().find(|left_out| left_out.node == name);
            left_out.map(|left_out| left_out.reason.clone()).unwrap_or_default()
        };
        assert!(of("n1").contains("other jobs"), "{:?}", found.left_out);
        assert!(of("n2").contains("4 of 64 cores") && of("n3").contains("polymeter calibrate"));
        assert_eq!(of("n5"), "node.dram.bandwidth: not sampled: node.pmu.amd_umc.umc_cas_cmd.wr");
        assert_eq!(found.parts.iter().map(|part| part.nodes).collect::<Vec<_>>(), [1], "n4");
        let none = roofline(node("n1", [1.0, 1.0], [1.0, 1.0]), &[], |_| ()).unwrap();
        assert_eq!((none.parts.len(), none.memory_bytes_per_s), (0, None), "it is not known to be alone");
        let only_memory = node("n1", [1.0, 1.0], [1.0, 1.0]).split_off(1);
        assert_eq!(roofline(only_memory, &[row("n1", false)], |_| ()), None);
    }
}
