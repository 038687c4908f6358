//! Series and reports for tests.

use polymeter_proto::units::{seconds_between, to_f64};
use polymeter_store::reader::{JobRow, SampleRow, SampleWindow};

use crate::breakdown;
use crate::curve::Curve;
use crate::model::{Report, SeriesReport, Submission};

/// Seconds since the epoch.
pub(crate) const START_S: i64 = 1_000_000;

const PERIOD_S: i64 = 60;

/// Pseudo-random numbers (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Number from -1 to 1.
    pub(crate) fn noise(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        to_f64((mixed ^ (mixed >> 31)) >> 11) / to_f64(1 << 53) * 2.0 - 1.0
    }
}

/// The job took a day.
pub(crate) fn job_row(id: &str) -> JobRow {
    let day_ns = 24 * 3_600_000_000_000;
    JobRow {
        job_key: 1,
        job_id: id.to_owned(),
        cluster: None,
        owner: None,
        owner_uid: None,
        started_ns: 0,
        ended_ns: Some(day_ns),
        sampled_ns: 0..day_ns,
        listed: 0,
        lost_nodes: Vec::new(),
        nodes: vec!["n1".to_owned()],
        node_list: None,
        account: None,
        queue: None,
        cores: None,
        state: None,
        exit_code: None,
        exit_signal: None,
        name: None,
        display_id: None,
        time_limit_s: None,
        memory_bytes: None,
        gpus: None,
        restarts: None,
        unread: None,
        run: None,
        usage: None,
        scheduler: None,
    }
}

/// Points from the start of a job on.
fn points(values: &[f64]) -> Vec<(i64, f64)> {
    (0..)
        .map(|number: i64| (START_S + number * PERIOD_S) * 1_000_000_000)
        .zip(values.iter().copied())
        .collect()
}

/// Rows of samples at `begin_ns` and each `spacing_ns` after it: windows of `size` samples, the first of which
/// lacks `offset` samples. A window of one sample is a sample.
pub(crate) fn windows_of(
    begin_ns: i64,
    spacing_ns: i64,
    size: usize,
    offset: usize,
    values: &[f64],
    is_counter: bool,
) -> Vec<SampleRow> {
    let mut rows = Vec::new();
    let mut begin = 0;
    while begin < values.len() {
        let end = values.len().min(if begin == 0 { size - offset } else { begin + size });
        let own = &values[begin..end];
        let rates = values[begin.saturating_sub(1)..end].windows(2);
        let rates: Vec<f64> =
            rates.map(|pair| (pair[1] - pair[0]) / seconds_between(0, spacing_ns)).collect();
        let of = if is_counter { rates.as_slice() } else { own };
        let window = SampleWindow {
            count: own.len() as u64,
            min: of.iter().copied().fold(f64::NAN, f64::min),
            max: of.iter().copied().fold(f64::NAN, f64::max),
            sum: if is_counter { f64::NAN } else { own.iter().sum() },
        };
        rows.push(SampleRow {
            series_id: 1,
            time_ns: begin_ns + ((end as u64).cast_signed() - 1) * spacing_ns,
            value: own[own.len() - 1],
            window: (size > 1).then_some(window),
        });
        begin = end;
    }
    rows
}

fn series(metric: &str, kind: &str, values: &[f64]) -> SeriesReport {
    let points = points(values);
    SeriesReport {
        metric: metric.to_owned(),
        node: "n1".to_owned(),
        kind: kind.to_owned(),
        samples: values.len() as u64,
        min: values.iter().copied().reduce(f64::min),
        mean: Some(values.iter().sum::<f64>() / f64::from(u32::try_from(values.len()).unwrap())),
        max: values.iter().copied().reduce(f64::max),
        first_us: START_S * 1_000_000,
        last_us: points.last().unwrap().0 / 1000,
        curve: Curve::of(&points),
        ..SeriesReport::default()
    }
}

pub(crate) fn gauge(metric: &str, values: &[f64]) -> SeriesReport {
    series(metric, "gauge", values)
}

/// Has these rates, in 1e9 per second, each of which lasts for a second.
pub(crate) fn counter(metric: &str, rates: &[f64]) -> SeriesReport {
    SeriesReport { growth: Some(rates.iter().sum::<f64>() * 1e9), ..series(metric, "counter", rates) }
}

/// Has these rates, in 1e9 per second, over all of the job's time.
pub(crate) fn busy(node: &str, cores: &[f64]) -> SeriesReport {
    let growth = cores.iter().sum::<f64>() * 60.0 * 1e9;
    on(node, SeriesReport { growth: Some(growth), ..series("cpu.usage", "counter", cores) })
}

pub(crate) fn on(node: &str, series: SeriesReport) -> SeriesReport {
    SeriesReport { node: node.to_owned(), ..series }
}

pub(crate) fn labelled(series: SeriesReport, labels: &str) -> SeriesReport {
    let [step, task] = ["step=", "task="]
        .map(|key| labels.split(',').find_map(|label| label.strip_prefix(key)).map(str::to_owned));
    SeriesReport { labels: labels.to_owned(), step, task, is_of_step: true, ..series }
}

/// Report of a completed job of `minutes`, on the nodes of its series with `cores` on all of them.
pub(crate) fn report(minutes: u32, cores: u64, series: Vec<SeriesReport>) -> Report {
    let mut nodes: Vec<String> = series.iter().map(|series| series.node.clone()).collect();
    nodes.sort();
    nodes.dedup();
    let by_node = breakdown::nodes(&nodes, &[], |_| Some(64), &series);
    let (steps, tasks) = breakdown::steps(&series);
    let of_job = series.iter().filter(|series| !series.is_of_step && series.metric == "cpu.usage");
    let cpu_ns = of_job.filter_map(|series| series.growth).reduce(|sum, growth| sum + growth);
    let mut report = Report {
        nodes,
        by_node,
        steps,
        tasks,
        ended: true,
        wall_s: f64::from(minutes) * 60.0,
        started_us: START_S * 1_000_000,
        ended_us: Some((START_S + i64::from(minutes) * 60) * 1_000_000),
        submission: Submission { cores: Some(cores), ..Submission::default() },
        series,
        ..Report::default()
    };
    report.outcome.state = Some("COMPLETED".to_owned());
    report.used.cpu_s = cpu_ns.map(|ns| ns / 1e9);
    report
}
