//! Tests of the energy of jobs whose nodes have several sources of energy: a wattmeter, a management
//! controller that is late, and the processors' counters.

use std::sync::Arc;

use polymeter_analysis::gather::gather;
use polymeter_analysis::model::{EnergyBySource, Report};
use polymeter_proto::batch::{Column, Job, Shape};
use polymeter_proto::ledger::Event;
use polymeter_proto::name::MetricName;
use polymeter_proto::period::Period;
use polymeter_proto::series::{
    Kind as MetricKind, Labels, MetricDescriptor, MetricId, Number, SeriesId, ShapeId, Unit,
};
use polymeter_store::reader::{Access, GuardedReader};

use crate::energy::{ALICE, BOB, assert_view_agrees, owned, summarise};
use crate::support::agent::Agent;
use crate::support::{TestEnvironment, now_us};

scenarios! {
    the_energy_of_a_job_is_that_of_its_best_source,
}

const RECORDED_S: u32 = 1200;
const BEGIN_S: i32 = 300;
const END_S: i32 = 900;

/// Times of high power, which follow no period of a source. The job ends in one of them.
const BURSTS_S: [(f64, f64); 8] = [
    (119.37, 170.92),
    (310.61, 333.18),
    (371.5, 399.83),
    (460.27, 461.94),
    (539.46, 632.71),
    (702.13, 707.38),
    (760.84, 801.29),
    (880.55, 931.07),
];

/// Metric, device, node, milliseconds between two readings, delay in seconds, and gain.
type Source = (&'static str, &'static str, &'static str, u32, f64, f64);

const METER: Source = ("device.meter1.power", "meter1", "n1", 200, 0.0, 1.0);
const CONTROLLER: Source = ("device.bmc1.power", "bmc1", "n1", 2000, 4.0, 0.95);
const PROCESSORS: Source = ("node.energy.package", "", "n1", 1000, 0.0, 0.6);
const METER_ALONE: Source = ("device.meter2.power", "meter2", "n2", 1000, 0.0, 1.0);
const METER_SHARED: Source = ("device.meter3.power", "meter3", "n3", 1000, 0.0, 1.0);

fn watts(seconds: f64) -> f64 {
    if BURSTS_S.iter().any(|(begin, end)| (*begin..*end).contains(&seconds)) { 410.0 } else { 150.0 }
}

/// Energy from the beginning of the recording to a time, by the lengths of the bursts.
fn joules(seconds: f64) -> f64 {
    let busy_s: f64 = BURSTS_S.iter().map(|(begin, end)| (seconds.min(*end) - begin).max(0.0)).sum();
    seconds * 150.0 + busy_s * 260.0
}

fn column((metric, device, node, ..): Source) -> Column {
    let counter = (Unit::Joules, MetricKind::Counter);
    let (unit, kind) = if device.is_empty() { counter } else { (Unit::Watts, MetricKind::Gauge) };
    let labels = [("device", device), ("node", node)].into_iter().filter(|_| !device.is_empty());
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    Column {
        series: SeriesId(1),
        metric: (
            MetricId(1),
            MetricDescriptor { name: MetricName::new(metric).unwrap(), unit, kind, number: Number::Float },
        ),
        labels: Labels::new(labels).unwrap(),
    }
}

fn shape(job: Option<&Arc<Job>>, column: Column) -> Arc<Shape> {
    let (source, period) = ("source".try_into().unwrap(), Period::SECOND);
    Arc::new(Shape { id: ShapeId(1), job: job.cloned(), source, period, window: None, columns: vec![column] })
}

/// Sends the readings of a source, those of devices from an agent elsewhere.
fn measure(environment: &TestEnvironment, endpoint: &str, session: u64, begin_us: i64, source: Source) {
    let (_, device, node, period_ms, delay_s, gain) = source;
    let node = if device.is_empty() { node } else { "devices1" };
    let mut agent = Agent::new(&environment.context, endpoint, node, session);
    let shape = shape(None, column(source));
    for number in 0..RECORDED_S * 1000 / period_ms {
        let time_ms = number * period_ms;
        let seconds = f64::from(time_ms) / 1000.0 - delay_s;
        let value = gain * if device.is_empty() { joules(seconds) } else { watts(seconds) };
        let at_us = begin_us + i64::from(time_ms) * 1000;
        agent.frame(&[(&shape, at_us, &[Some(value.to_bits())])], &[], &[]);
    }
    agent.send_from(0);
    agent.wait_until_acknowledged();
}

/// Intensities at irregular times, in grams of carbon dioxide for each kilowatt-hour.
const INTENSITIES: [(i32, f64); 5] = [(-1800, 55.0), (-2, 310.0), (411, 120.5), (444, 900.0), (1100, 1e9)];

/// States the intensities of the site by an agent elsewhere.
fn state_intensities(environment: &TestEnvironment, endpoint: &str, begin_us: i64) {
    let mut agent = Agent::new(&environment.context, endpoint, "devices1", 99);
    let labels = [("device", "grid"), ("node", "*"), ("unit", "gCO2/kWh")];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let name = MetricName::new("device.grid.intensity").unwrap();
    let (unit, kind, number) = (Unit::Labelled, MetricKind::Gauge, Number::Float);
    let column = Column {
        series: SeriesId(1),
        metric: (MetricId(1), MetricDescriptor { name, unit, kind, number }),
        labels: Labels::new(labels.to_vec()).unwrap(),
    };
    let shape = shape(None, column);
    for (second, value) in INTENSITIES {
        let at_us = begin_us + i64::from(second) * 1_000_000;
        agent.frame(&[(&shape, at_us, &[Some(value.to_bits())])], &[], &[]);
    }
    agent.send_from(0);
    agent.wait_until_acknowledged();
}

/// Grams of the energy of the job, in steps of a hundredth of a second.
fn grams() -> f64 {
    let steps = (BEGIN_S * 100..END_S * 100).map(|step| (f64::from(step) + 0.5) / 100.0);
    let at = |second: f64| {
        let in_force = INTENSITIES.iter().rev().find(|(from, _)| f64::from(*from) <= second).unwrap();
        watts(second) * 0.01 / 3.6e6 * in_force.1
    };
    steps.map(at).sum()
}

fn run(environment: &TestEnvironment, endpoint: &str, place: (&str, u64), begin_us: i64, jobs: &[Arc<Job>]) {
    let mut agent = Agent::new(&environment.context, endpoint, place.0, place.1);
    let at_us = |second: i64| begin_us + second * 1_000_000;
    for (job, id) in jobs.iter().zip(1..) {
        let usage = MetricDescriptor {
            name: MetricName::new("cpu.usage").unwrap(),
            unit: Unit::Nanoseconds,
            kind: MetricKind::Counter,
            number: Number::Unsigned,
        };
        let column = Column { series: SeriesId(id), metric: (MetricId(1), usage), labels: Labels::default() };
        let of_job = Arc::new(Shape { id: ShapeId(id), ..(*shape(Some(job), column)).clone() });
        for second in [BEGIN_S, END_S] {
            agent.frame(&[(&of_job, at_us(i64::from(second)), &[Some(1)])], &[], &[]);
        }
    }
    let ends: Vec<Event> =
        jobs.iter().map(|job| Event::JobEnded { job: job.handle, at_us: at_us(i64::from(END_S)) }).collect();
    agent.frame(&[], &[], &ends);
    agent.send_from(0);
    agent.wait_until_acknowledged();
}

fn near(value: f64, expected: f64, part: f64) {
    assert!((value / expected - 1.0).abs() < part, "{value}, not {expected}");
}

/// Returns the source of a device; that of no device for an empty name.
fn of<'a>(report: &'a Report, device: &str) -> &'a EnergyBySource {
    let found = report.energy_sources.iter().find(|one| one.devices.concat() == device);
    found.unwrap_or_else(|| panic!("{device}: {:#?}", report.energy_sources))
}

fn assert_delay(source: &EnergyBySource, delay_s: f64) {
    let (found_s, error_s) = source.delay_s.zip(source.delay_error_s).unwrap();
    assert!((found_s - delay_s).abs() <= error_s && error_s < 1.5, "{source:?}, not {delay_s} s");
}

fn assert_several(report: &Report, expected: f64) {
    let (meter, controller, processors) = (of(report, "meter1"), of(report, "bmc1"), of(report, ""));
    assert_eq!(report.energy_sources.len(), 3);
    assert_eq!((meter.is_best, controller.is_best, processors.is_best), (true, false, false));
    assert_eq!((meter.part, controller.part, processors.part), ("node", "node", "processors"));
    assert_eq!(meter.delay_s, None, "it is the fastest");
    assert_delay(controller, 4.0);
    assert_delay(processors, 0.0);
    near(meter.joules, expected, 0.002);
    near(processors.joules, 0.6 * expected, 0.01);
    let difference = (controller.joules - 0.95 * expected).abs();
    assert!(difference <= controller.error_joules, "{controller:?}, not {}", 0.95 * expected);
    // All figures are those of the best source.
    let energy = report.energy.as_ref().unwrap();
    near(energy.joules, meter.joules, 1e-9);
    near(report.by_node[0].energy_joules.unwrap(), meter.joules, 1e-9);
    near(energy.watts_mean.unwrap() * f64::from(END_S - BEGIN_S), meter.joules, 1e-9);
    assert_eq!((energy.nodes, energy.is_estimate, energy.error_joules), (1, false, Some(meter.error_joules)));
    let [part] = &energy.parts[..] else { panic!("{energy:?}") };
    assert_eq!(part.part, "node");
    near(part.joules, meter.joules, 1e-9);
    // Nobody can tell from the values which of both is right.
    near(meter.error_joules, meter.joules - controller.joules, 1e-9);
    // Without its delay the controller is further off: a burst hides the end of the job.
    let as_read = report.devices.iter().find(|one| one.devices == ["bmc1"]).unwrap().joules.unwrap();
    assert!((as_read - 0.95 * expected).abs() > difference, "{as_read}, {controller:?}");
}

fn the_energy_of_a_job_is_that_of_its_best_source(environment: &mut TestEnvironment) {
    let collector = environment.collector();
    let begin_us = (now_us() / 1_000_000 - 2 * 3600) * 1_000_000;
    let started_us = begin_us + 300 * 1_000_000;
    let endpoint = collector.endpoint();
    let sharing = [owned(1, "3", ALICE, started_us), owned(2, "4", BOB, started_us)];
    run(environment, endpoint, ("n1", 1), begin_us, &[owned(1, "1", ALICE, started_us)]);
    run(environment, endpoint, ("n2", 2), begin_us, &[owned(1, "2", ALICE, started_us)]);
    run(environment, endpoint, ("n3", 3), begin_us, &sharing);
    for (session, source) in (4..).zip([METER, CONTROLLER, PROCESSORS, METER_ALONE, METER_SHARED]) {
        measure(environment, endpoint, session, begin_us, source);
    }
    state_intensities(environment, endpoint, begin_us);
    collector.stop().unwrap();
    let mut jobs = environment.jobs();
    jobs.sort_by(|one, other| one.job_id.cmp(&other.job_id));
    summarise(environment);
    for job in jobs.iter().take(2) {
        assert_view_agrees(environment, job);
    }
    let shared = format!("SELECT count(*) FROM energy_by_job WHERE job_key = {}", jobs[2].job_key);
    assert_eq!(environment.number(&shared), 0, "it has none in the report either");
    let expected = joules(END_S.into()) - joules(BEGIN_S.into());
    for access in [Access::owner(ALICE), Access::All] {
        let report = |number: usize| {
            let mut reader = GuardedReader::new(environment.reader(), access.clone());
            gather(&mut reader, &jobs[number], Some(4)).unwrap()
        };
        assert_several(&report(0), expected);
        let alone = report(1);
        assert_eq!(alone.energy_sources, [], "one source has nothing beside it");
        let energy = alone.energy.unwrap();
        let error_joules = energy.error_joules.unwrap();
        assert!((energy.joules - expected).abs() <= error_joules, "{energy:?}, not {expected}");
        assert!(error_joules < 0.03 * expected, "{energy:?}");
        for energy in [&energy, report(0).energy.as_ref().unwrap()] {
            near(energy.carbon_grams.unwrap(), grams(), 0.02);
        }
        let shared = report(2);
        assert_eq!((shared.energy, shared.energy_sources.len()), (None, 0), "nothing divides a wattmeter");
        assert_eq!(shared.devices.len(), 1);
    }
}
