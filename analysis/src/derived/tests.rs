use polymeter_proto::series::Labels;
use polymeter_store::reader::SeriesRow;

use super::*;
use crate::downsample::Part;
use crate::expression::Type;
use crate::model::NodeEnergy;
use crate::series::{Periods, Summary};
use crate::testing::{Random, report};

const S: i64 = 1_000_000_000;

/// Summarises samples, in seconds and values, as a report does.
pub(super) fn sampled(metric: &str, labels: &str, node: &str, samples: &[(f64, f64)]) -> SeriesReport {
    let definition = catalogue::find(metric);
    let unit = definition.as_ref().map_or("labelled", |definition| definition.metric.unit.as_str());
    let kind = definition.as_ref().map_or("gauge", |definition| definition.metric.kind.as_str());
    let pairs = labels.split(',').filter_map(|label| label.split_once('='));
    let row = SeriesRow {
        series_id: 1,
        node: node.to_owned(),
        metric: metric.to_owned(),
        unit: unit.to_owned(),
        kind: kind.to_owned(),
        labels: Labels::new(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()).unwrap(),
    };
    let samples: Vec<(i64, f64)> = samples
        .iter()
        .map(|(at, value)| (i64::try_from(units::whole(at * 1e3)).unwrap() * S / 1000, *value))
        .collect();
    Summary::of_samples(&row, &samples, None).unwrap().report(&row, Periods::default(), None)
}

fn with_derived(series: Vec<SeriesReport>) -> Report {
    let mut report = report(60, 8, series);
    add_to(&mut report);
    report
}

fn derived_of<'a>(report: &'a Report, metric: &str) -> &'a DerivedReport {
    report.derived.iter().find(|derived| derived.metric == metric).unwrap()
}

pub(super) fn near(found: Option<f64>, expected: f64) -> bool {
    found.is_some_and(|found| (found - expected).abs() <= 1e-9 * expected.abs().max(1.0))
}

#[test]
fn all_expressions_are_numbers_of_their_inputs() {
    for derived in derived::all() {
        for formula in derived.formulas {
            let expression = Expression::parse(formula.expression, &Names(formula))
                .unwrap_or_else(|error| panic!("{}: {error}", derived.name));
            assert_eq!(expression.result(), Type::Number, "{}", derived.name);
            for input in formula.inputs {
                assert!(
                    expression.names().iter().any(|name| name == input.name),
                    "{}: {}",
                    derived.name,
                    input.name
                );
            }
        }
    }
}

#[test]
fn the_mean_is_the_ratio_of_sums() {
    // 100 instructions in 10 cycles, then 100 in 1000.
    let report = with_derived(vec![
        sampled("perf.instructions", "", "n1", &[(0.0, 0.0), (1.0, 100.0), (2.0, 200.0)]),
        sampled("perf.cpu_cycles", "", "n1", &[(0.0, 0.0), (1.0, 10.0), (2.0, 1010.0)]),
    ]);
    let series = report.series.iter().find(|series| series.metric == "perf.ipc").unwrap();
    assert!(near(series.mean, 200.0 / 1010.0), "{:?}, not the mean of 10 and 0.1", series.mean);
    assert!(near(series.min, 0.1) && near(series.max, 10.0), "{:?} {:?}", series.min, series.max);
    assert_eq!((series.samples, series.first_us, series.last_us), (2, 0, 2_000_000));
    assert!(series.is_derived);
    assert!(near(derived_of(&report, "perf.ipc").value, 200.0 / 1010.0));
}

#[test]
fn inputs_count_over_the_time_that_they_share() {
    // The second input was sampled from 2 s on.
    let report = with_derived(vec![
        sampled("perf.branch_misses", "", "n1", &[(0.0, 0.0), (2.0, 1000.0), (4.0, 1010.0)]),
        sampled("perf.branch_instructions", "", "n1", &[(2.0, 0.0), (3.0, 40.0), (4.0, 100.0)]),
    ]);
    assert!(near(derived_of(&report, "perf.branch_miss_ratio").value, 10.0));
}

#[test]
fn floating_point_operations_are_weighted_by_their_width() {
    let mut random = Random(7);
    let events = [
        ("scalar_double", 1.0),
        ("128b_packed_double", 2.0),
        ("256b_packed_double", 4.0),
        ("512b_packed_double", 8.0),
        ("scalar_single", 1.0),
        ("128b_packed_single", 4.0),
        ("256b_packed_single", 8.0),
        ("512b_packed_single", 16.0),
    ];
    let (mut series, mut operations) = (Vec::new(), 0.0);
    for (event, width) in events {
        let counts: Vec<f64> = (0..20).map(|_| (random.noise() * 1e6).abs().round()).collect();
        let mut total = 0.0;
        let samples: Vec<(f64, f64)> = counts
            .iter()
            .enumerate()
            .map(|(number, count)| {
                total += count;
                (units::to_f64(number as u64) / 2.0, total)
            })
            .collect();
        // The first sample counts nothing.
        operations += width * counts[1..].iter().sum::<f64>();
        series.push(sampled(&format!("perf.event.fp_arith_inst_retired.{event}"), "", "n1", &samples));
    }
    let report = with_derived(series);
    assert!(near(derived_of(&report, "perf.flops").value, operations / 9.5));
    let amd = sampled("perf.event.fp_ret_sse_avx_ops.all", "", "n1", &[(0.0, 5.0), (2.0, 105.0)]);
    assert!(near(derived_of(&with_derived(vec![amd]), "perf.flops").value, 50.0));
    let grace = ["fixed", "scale"]
        .map(|kind| sampled(&format!("perf.event.fp_{kind}_ops_spec"), "", "n1", &[(0.0, 0.0), (2.0, 30.0)]));
    assert!(near(derived_of(&with_derived(grace.into()), "perf.flops").value, 30.0));
}

fn memory_commands(event: &str, cpu: &str, total: f64) -> SeriesReport {
    sampled(&format!("node.pmu.uncore_imc.cas_count_{event}"), cpu, "n1", &[(0.0, 0.0), (4.0, total)])
}

#[test]
fn the_memory_bandwidth_is_the_sum_over_the_sockets() {
    let report = with_derived(vec![
        memory_commands("read", "cpu=0", 100.0),
        memory_commands("read", "cpu=56", 300.0),
        memory_commands("write", "cpu=0", 8.0),
        memory_commands("write", "cpu=56", 0.0),
    ]);
    // The scale that the kernel states for the event, 6.103515625e-5 MiB, is 64 bytes.
    let bytes = 408.0 * 6.103_515_625e-5 * 1_048_576.0;
    assert!(near(derived_of(&report, "node.dram.bandwidth").value, bytes / 4.0));
    // An agent that has applied the scale stores bytes.
    let mut series = Vec::new();
    for (event, lines) in [("read", 400.0), ("write", 8.0)] {
        let mut of_event = memory_commands(event, "cpu=0", lines * 6.103_515_625e-5 * 1_048_576.0);
        of_event.unit = "bytes".to_owned();
        series.push(of_event);
    }
    assert!(near(derived_of(&with_derived(series), "node.dram.bandwidth").value, bytes / 4.0));
}

#[test]
fn counts_are_scaled_where_counters_were_shared() {
    let group = "group=perf.cpu_cycles+perf.instructions";
    let of =
        |metric: &str, labels: &str, total: f64| sampled(metric, labels, "n1", &[(0.0, 0.0), (10.0, total)]);
    let series = vec![
        of("perf.event.fp_ret_sse_avx_ops.all", "", 100.0),
        of("perf.time_enabled", "group=perf.event.fp_ret_sse_avx_ops.all", 80e9),
        of("perf.time_running", "group=perf.event.fp_ret_sse_avx_ops.all", 20e9),
        of("perf.instructions", "", 30.0),
        of("perf.cpu_cycles", "", 10.0),
        of("perf.time_enabled", group, 80e9),
        of("perf.time_running", group, 60e9),
    ];
    let report = with_derived(series);
    let flops = derived_of(&report, "perf.flops");
    assert!(near(flops.value, 40.0) && near(flops.counted, 0.25), "{flops:?}");
    let ipc = derived_of(&report, "perf.ipc");
    assert!(near(ipc.value, 3.0) && near(ipc.counted, 0.75), "{ipc:?}");
    assert!(
        report.notes.iter().any(|note| note.contains("counted 25 % of the time on n1")),
        "{:?}",
        report.notes
    );
}

#[test]
fn what_is_unknown_has_a_reason_and_no_value() {
    let of = |metric: &str, samples: &[(f64, f64)]| sampled(metric, "", "n1", samples);
    let report = with_derived(vec![
        of("perf.instructions", &[(0.0, 0.0), (1.0, 5.0)]),
        of("perf.cache_misses", &[(0.0, 1.0), (1.0, 1.0)]),
        of("perf.cache_references", &[(0.0, 7.0), (1.0, 7.0)]),
        of("perf.branch_misses", &[(0.0, 1.0), (1.0, 2.0)]),
        of("perf.branch_instructions", &[(2.0, 1.0), (3.0, 2.0)]),
    ]);
    let unknown = |metric: &str| {
        let derived = derived_of(&report, metric);
        assert_eq!(derived.value, None, "{metric}");
        derived.reason.clone().unwrap()
    };
    assert_eq!(unknown("perf.ipc"), "not sampled: perf.cpu_cycles");
    assert!(unknown("perf.cache_miss_ratio").contains("a divisor is 0"));
    assert_eq!(unknown("perf.branch_miss_ratio"), "its inputs were not sampled at the same time");
    assert!(!report.series.iter().any(|series| series.is_derived));
    assert!(with_derived(vec![of("cpu.usage", &[(0.0, 0.0), (1.0, 1.0)])]).derived.is_empty());
}

#[test]
fn a_time_without_divisor_has_no_point_and_counts_in_the_mean() {
    let report = with_derived(vec![
        sampled("perf.instructions", "", "n1", &[(0.0, 0.0), (1.0, 100.0), (2.0, 100.0), (3.0, 200.0)]),
        sampled("perf.cpu_cycles", "", "n1", &[(0.0, 0.0), (1.0, 50.0), (2.0, 50.0), (3.0, 150.0)]),
    ]);
    let series = report.series.iter().find(|series| series.metric == "perf.ipc").unwrap();
    let points: Vec<(i64, f64)> =
        series.curve.intervals().iter().map(|interval| (interval.time_ns, interval.min)).collect();
    assert_eq!(points.iter().map(|(time_ns, _)| *time_ns).collect::<Vec<_>>(), [S, 3 * S]);
    assert!(near(series.mean, 200.0 / 150.0));
}

fn energy(joules: f64) -> NodeEnergy {
    NodeEnergy {
        parts: vec![crate::model::MeasuredPart {
            part: "processors",
            source: "node.energy.package".to_owned(),
            energy: Cumulative::of_samples(&[(0, 0.0), (10 * S, joules)]),
        }],
        is_estimate: false,
        error_joules: None,
    }
}

#[test]
fn energy_is_divided_by_the_work_of_the_whole_job() {
    let iterations = sampled("user.iterations", "", "n1", &[(0.0, 0.0), (5.0, 10.0), (10.0, 20.0)]);
    let mut report =
        report(60, 8, vec![iterations, sampled("cpu.usage", "", "n2", &[(0.0, 0.0), (1.0, 1.0)])]);
    report.node_energy.insert("n1".to_owned(), energy(300.0));
    add_to(&mut report);
    assert!(report.derived.is_empty(), "the energy of n2 is unknown");
    report.node_energy.insert("n2".to_owned(), energy(500.0));
    add_to(&mut report);
    let per_iteration = derived_of(&report, "energy_per.iterations");
    assert!(near(per_iteration.value, 40.0), "{per_iteration:?}");
}

fn row(metric: &str, labels: &str, node: &str) -> SeriesRow {
    SeriesRow {
        series_id: 1,
        node: node.to_owned(),
        metric: metric.to_owned(),
        unit: catalogue::find(metric).unwrap().metric.unit.as_str().to_owned(),
        kind: "counter".to_owned(),
        labels: Labels::new(
            labels
                .split_once('=')
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into_iter()
                .collect(),
        )
        .unwrap(),
    }
}

fn parts(rates: &[f64]) -> Vec<Part> {
    (0..)
        .zip(rates)
        .map(|(second, mean): (i64, &f64)| Part {
            time_ns: second * S,
            count: 2,
            min: 0.0,
            max: 1e9,
            mean: *mean,
        })
        .collect()
}

#[test]
fn parts_of_a_time_are_those_of_the_increases_in_them() {
    let mut ipc = DerivedParts::of("perf.ipc").unwrap();
    assert!(ipc.metrics().contains(&"perf.time_running") && ipc.unit() == "instructions/cycle");
    ipc.add(&row("perf.instructions", "", "n1"), &parts(&[30.0, 10.0, 5.0]));
    ipc.add(&row("perf.cpu_cycles", "", "n1"), &parts(&[10.0, 20.0, 0.0]));
    ipc.add(&row("perf.instructions", "", "n2"), &parts(&[30.0]));
    let found = ipc.finish();
    let [(node, values)] = found.as_slice() else { panic!("{found:?}") };
    let values: Vec<(i64, f64)> = values.iter().map(|part| (part.time_ns, part.mean)).collect();
    assert_eq!(
        (*node, values),
        ("n1", vec![(0, 3.0), (S, 0.5)]),
        "nothing is divided by 0, and n2 lacks an input"
    );
    let mut flops = DerivedParts::of("perf.flops").unwrap();
    let event = "perf.event.fp_ret_sse_avx_ops.all";
    flops.add(&row(event, "", "n1"), &parts(&[7.0, 7.0, 7.0]));
    flops.add(&row("perf.time_enabled", &format!("group={event}"), "n1"), &parts(&[4.0, 4.0, 4.0]));
    flops.add(&row("perf.time_running", &format!("group={event}"), "n1"), &parts(&[1.0, 4.0, 0.0]));
    let scaled: Vec<f64> = flops.finish()[0].1.iter().map(|part| part.mean).collect();
    assert_eq!(scaled, [28.0, 7.0], "an event that was never counted has no value");
    assert!(DerivedParts::of("energy_per.iterations").is_none() && DerivedParts::of("cpu.usage").is_none());
    let names = |sampled: &[&str]| -> Vec<&str> {
        known(|metric| sampled.contains(&metric)).into_iter().map(|derived| derived.name).collect()
    };
    assert_eq!(names(&["perf.instructions", "perf.cpu_cycles", event]), ["perf.ipc", "perf.flops"]);
    assert!(names(&["perf.instructions"]).is_empty());
}
