//! Tests of charts on synthetic reports.

use super::*;
use crate::curve::Curve;
use crate::model::{MarkedInstant, PeriodUse, Phase};
use crate::testing::{START_S, busy, gauge, labelled, on, report};

const SECOND_NS: i64 = 1_000_000_000;

fn chart_of<'a>(charts: &'a Charts, id: &str) -> &'a Chart {
    charts.charts.iter().find(|chart| chart.id == id).unwrap_or_else(|| panic!("no {id}"))
}

fn cores(node: &str, values: &[f64]) -> SeriesReport {
    SeriesReport { rate_unit: Some("cores"), ..busy(node, values) }
}

#[test]
fn the_lines_of_several_nodes_are_minimum_median_and_maximum() {
    let job = report(
        4,
        8,
        vec![
            cores("n1", &[1.0, 1.0, 1.0, 1.0]),
            cores("n2", &[2.0, 2.0, 8.0, 2.0]),
            cores("n3", &[3.0, 3.0, 3.0, 3.0]),
        ],
    );
    let charts = of(&job);
    assert_eq!((charts.begin_us, charts.span_s, charts.rows.len()), (START_S * 1_000_000, 240.0, 3));
    let chart = chart_of(&charts, "cores");
    assert_eq!((chart.unit.as_str(), chart.lines.middle.len()), ("cores", 4));
    assert_eq!(chart.lines.low, [1.0; 4]);
    assert_eq!(chart.lines.middle, [2.0, 2.0, 3.0, 2.0]);
    assert_eq!(chart.lines.high, [3.0, 3.0, 8.0, 3.0]);
    assert_eq!(chart.extent, Extent { min: 1.0, mean: 2.5, max: 8.0 });
    assert_eq!(chart.heat.as_ref().unwrap().cells[4..8], [2.0, 2.0, 8.0, 2.0]);
    assert_eq!(chart.over_nodes.as_ref().unwrap().quantiles, [1.0, 1.0, 3.0, 3.0, 3.5, 3.5, 3.5]);
    assert_eq!(chart.over_time.as_ref().unwrap().histogram.counts.iter().sum::<u64>(), 12);
}

#[test]
fn one_node_has_the_range_of_its_values_and_no_heat_map() {
    let points: Vec<(i64, f64)> = (0..100_000_i64)
        .map(|number| {
            (START_S * SECOND_NS + number * 2_400_000, if number % 1000 == 500 { 9.0 } else { 1.0 })
        })
        .collect();
    let series = SeriesReport { curve: Curve::of(&points), ..gauge("memory.anon", &[1.0]) };
    let charts = of(&report(4, 8, vec![series]));
    let chart = chart_of(&charts, "memory");
    assert_eq!((chart.lines.middle.len(), chart.extent.max), (MAIN_POINTS, 9.0));
    assert!(chart.heat.is_none() && chart.over_nodes.is_none() && charts.is_of_one_node);
    assert!(chart.lines.low.iter().all(|value| *value == 1.0), "{:?}", chart.lines.low);
    assert_eq!(chart.lines.high.iter().filter(|value| **value == 9.0).count(), 100);
}

#[test]
fn a_quantity_is_measured_by_the_first_choice_that_was_sampled() {
    let metrics = |id: &str, sampled: &[&str]| {
        let quantity = MAIN_QUANTITIES.iter().find(|quantity| quantity.id() == id).unwrap();
        quantity.metrics(|metric| sampled.contains(&metric))
    };
    assert_eq!(
        metrics("cores", &["perf.task_clock", "process.cpu.usage"]),
        Some((vec!["process.cpu.usage"], vec![]))
    );
    assert_eq!(metrics("cores", &["memory.anon"]), None);
    let all = ["memory.anon", "memory.shmem", "memory.file", "memory.current"];
    assert_eq!(metrics("memory", &all), Some((vec!["memory.anon", "memory.shmem"], vec![])));
    assert_eq!(metrics("memory", &["memory.anon"]), Some((vec!["memory.anon"], vec![])));
    assert_eq!(metrics("cache", &all), Some((vec!["memory.file"], vec!["memory.shmem"])));
}

#[test]
fn quantities_are_computed_from_several_metrics() {
    let job = report(
        3,
        8,
        vec![
            gauge("memory.anon", &[5.0, 6.0, 7.0]),
            gauge("memory.shmem", &[1.0, 1.0, 4.0]),
            gauge("memory.file", &[3.0, 9.0, 2.0]),
            labelled(gauge("memory.anon", &[100.0, 100.0, 100.0]), "step=0"),
            labelled(gauge("user.loss", &[2.0, 2.0, 2.0]), "step=0"),
            labelled(gauge("user.loss", &[3.0, 3.0, 3.0]), "step=1"),
            labelled(gauge("user.loss", &[7.0, 7.0, 7.0]), "step=1,task=0"),
        ],
    );
    let charts = of(&job);
    assert_eq!(chart_of(&charts, "memory").lines.middle, [6.0, 7.0, 11.0]);
    assert_eq!(chart_of(&charts, "cache").lines.middle, [2.0, 8.0, 0.0], "never below 0");
    assert_eq!(chart_of(&charts, "metric:user.loss").lines.middle, [5.0; 3], "steps without their tasks");
    let ids: Vec<&str> = charts.charts.iter().map(|chart| chart.id.as_str()).collect();
    let others = ["metric:memory.anon", "metric:memory.file", "metric:memory.shmem", "metric:user.loss"];
    assert_eq!(ids[..2], ["memory", "cache"]);
    assert_eq!(ids[2..], others);
}

#[test]
fn the_mean_of_devices_counts_for_shares_and_their_sum_for_amounts() {
    let of_gpu = |metric: &str, unit: &str, value: f64| SeriesReport {
        unit: unit.to_owned(),
        ..gauge(metric, &[value; 3])
    };
    let charts = of(&report(
        3,
        8,
        vec![
            of_gpu("gpu.utilization", "percent", 10.0),
            of_gpu("gpu.utilization", "percent", 90.0),
            of_gpu("gpu.memory.used", "bytes", 4.0),
            of_gpu("gpu.memory.used", "bytes", 6.0),
        ],
    ));
    assert_eq!(chart_of(&charts, "gpu_utilization").lines.middle, [50.0; 3]);
    assert_eq!(chart_of(&charts, "gpu_memory").lines.middle, [10.0; 3]);
}

#[test]
fn gaps_are_gaps_and_slow_samples_are_not() {
    let at = |second: i64| ((START_S + second) * SECOND_NS, 1.0);
    // Every second, then nothing for a minute.
    let points: Vec<_> = (0..60).chain(120..240).map(at).collect();
    let gap = SeriesReport { curve: Curve::of(&points), ..gauge("memory.anon", &[1.0]) };
    // A lease of 10 ms in the middle of samples every 10 s.
    let lease = (0..1000_i64).map(|number| (at(100).0 + number * 10_000_000, 1.0));
    let slow = (0..24).map(|number| at(number * 10));
    let mut points: Vec<_> = lease.chain(slow).collect();
    points.sort_by_key(|(time_ns, _)| *time_ns);
    let periods = vec![PeriodUse { period: "10s".to_owned(), seconds: 230.0 }];
    let leased = SeriesReport { curve: Curve::of(&points), periods, ..gauge("memory.file", &[1.0]) };
    let charts = of(&report(4, 8, vec![gap, leased]));
    let lines = &chart_of(&charts, "memory").lines.middle;
    assert_eq!(lines.len(), 240);
    let missing: Vec<usize> = (0..lines.len()).filter(|column| lines[*column].is_nan()).collect();
    assert_eq!(missing, (60..120).collect::<Vec<_>>());
    let lines = &chart_of(&charts, "cache").lines.middle;
    assert!(lines.len() == MAIN_POINTS && lines.iter().all(|value| *value == 1.0), "{lines:?}");
}

#[test]
fn the_last_sample_of_a_job_does_not_determine_the_resolution() {
    let at = |ms: i64| (START_S * SECOND_NS + ms * 1_000_000, 1.0);
    // Every 100 ms, and once more at the end.
    let points: Vec<_> = (0..=10).map(|number| at(number * 100)).chain([at(1003)]).collect();
    let series = SeriesReport { curve: Curve::of(&points), ..gauge("memory.anon", &[1.0]) };
    let mut job = report(1, 8, vec![series]);
    job.ended_us = Some(job.started_us + 1_003_000);
    assert_eq!(chart_of(&of(&job), "memory").lines.middle, [1.0; 10]);
}

fn phase(node: &str, name: &str, begin_s: Option<f64>, end_s: Option<f64>) -> Phase {
    Phase { node: node.to_owned(), name: name.to_owned(), begin_s, end_s, ..Phase::default() }
}

#[test]
fn phases_of_several_nodes_are_one_band() {
    let mut job = report(1, 8, vec![cores("n1", &[1.0])]);
    job.phases = vec![
        phase("n1", "solve", Some(10.0), Some(20.0)),
        phase("n2", "solve", Some(11.0), Some(25.0)),
        phase("n1", "solve", Some(30.0), Some(40.0)),
        phase("n1", &"x".repeat(500), None, Some(5.0)),
        phase("n1", "open", Some(50.0), None),
    ];
    job.marks = vec![MarkedInstant { name: "m".to_owned(), at_s: 7.0, ..MarkedInstant::default() }];
    let charts = of(&job);
    let bands: Vec<_> =
        charts.bands.iter().map(|band| (band.name.as_str(), band.begin_s, band.end_s)).collect();
    assert_eq!(bands[1..], [("solve", 10.0, 25.0), ("solve", 30.0, 40.0), ("open", 50.0, 60.0)]);
    assert_eq!((bands[0].0.chars().count(), bands[0].2), (121, 5.0));
    assert_eq!((charts.marks.len(), charts.bands_left_out), (1, 0));
}

#[test]
fn a_job_without_samples_or_time_has_no_charts() {
    assert_eq!(of(&Report::default()).charts, []);
    let mut job = report(1, 8, vec![cores("n1", &[1.0])]);
    job.ended_us = Some(job.started_us);
    let charts = of(&job);
    assert_eq!((charts.span_s, chart_of(&charts, "cores").lines.middle.as_slice()), (0.0, [1.0].as_slice()));
    let nothing = SeriesReport { curve: Curve::default(), ..gauge("memory.anon", &[1.0]) };
    let not_a_number = gauge("memory.file", &[f64::NAN, f64::INFINITY]);
    assert_eq!(of(&report(1, 8, vec![nothing, not_a_number])).charts, []);
}

fn size(nodes: u32, metrics: u32) -> (usize, usize) {
    let mut random = 1_u32;
    let mut noise = || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(random >> 8)
    };
    let mut series = Vec::new();
    for node in 0..nodes {
        let name = format!("node{node:05}");
        let values: Vec<f64> = (0..1440).map(|_| noise()).collect();
        let main = ["memory.anon", "memory.file", "gpu.utilization", "gpu.memory.used", "gpu.power"];
        series.extend(main.map(|metric| on(&name, gauge(metric, &values))));
        series.push(cores(&name, &values));
        series
            .extend((0..metrics).map(|number| on(&name, gauge(&format!("user.{number:04}"), &values[..90]))));
    }
    let charts = of(&report(1440, u64::from(nodes) * 64, series));
    let packed = pack(&charts);
    (packed.values.len(), serde_json::to_string(&packed.charts).unwrap().len())
}

#[test]
fn the_size_is_bounded() {
    for (nodes, metrics) in [(1, 500), (100, 60), (500, 8)] {
        let (values, json) = size(nodes, metrics);
        assert!(values < 900_000, "{values} bytes for {nodes} nodes and {metrics} metrics");
        assert!(json < 450_000, "{json} bytes of JSON for {nodes} nodes and {metrics} metrics");
    }
    let rows = heat::rows(&["n"; 1001]);
    assert_eq!(rows.len(), 167, "6 nodes each");
    let described = rows[166].described(&["n"; 1001]);
    assert_eq!(described.nodes, 5);
}

#[test]
fn packed_lines_lie_one_behind_the_other() {
    let charts = of(&report(2, 8, vec![cores("n1", &[1.0, 4.0]), cores("n2", &[3.0, 2.0])]));
    let packed = pack(&charts);
    let chart = &packed.charts.charts[0];
    assert_eq!((chart.points, chart.lines.at, chart.lines.count), (2, 0, 6));
    assert_eq!(chart.lines.scale, 4.0 / 32_768.0);
    // The third value is the median of the first column, 2: half of the largest.
    assert_eq!(packed.values[4..6], 0x7400_u16.to_le_bytes());
    assert_eq!(chart.heat.map(|heat| (heat.at, heat.count)), Some((6, 4)));
    assert_eq!(packed.values.len(), 20);
}
