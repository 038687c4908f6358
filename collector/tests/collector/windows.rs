//! Tests of windows: in every store they have the figures of the samples that they stand for, which the test
//! computes itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_analysis::gather::gather;
use polymeter_analysis::model::{Report, SeriesReport};
use polymeter_proto::histogram;
use polymeter_proto::name::MetricName;
use polymeter_proto::series::{
    Identifier, JobDescriptor, JobHandle, Kind as MetricKind, Labels, MetricDescriptor, Number,
    SessionDescriptor, SessionId, Unit,
};
use polymeter_store::accepted::{
    Accepted, HistogramRecord, JobRecord, LedgerLine, SampleBlock, SeriesRecord, SessionRecord, StoreId,
    WindowColumns,
};
use polymeter_store::reader::SeriesScope;
use polymeter_store::{ExtensionMode, Keep, OpenOptions, Retention, Store, prune, set_retention};

use crate::rollups::{HOUR_US, begin_us, wait_until_computed};
use crate::support::{Kind, TestEnvironment, wait_until};

scenarios![
    windows_have_the_figures_of_their_samples,
    windows_of_unlikely_times_are_quarantined,
    histograms_go_with_their_samples
];

/// Time between two samples. A window has 20 of them.
const SPACING_US: i64 = 50_000;

const SIZE: usize = 20;

/// The first window lacks as many samples.
const OFFSET: usize = 7;

/// Three minutes.
const SAMPLES: usize = 3600;

/// Metrics, of which the second is a counter that is exact.
const METRICS: [(&str, MetricKind, Unit); 2] = [
    ("memory.current", MetricKind::Gauge, Unit::Bytes),
    ("perf.instructions", MetricKind::Counter, Unit::Count),
];

fn values() -> [Vec<f64>; 2] {
    let gauge = (0..SAMPLES).map(|number| ((number * 7919) % 1013) as f64);
    let mut total = 1e6;
    let counter = (0..SAMPLES).map(|number| {
        total += ((number * 104_729) % 997) as f64;
        total
    });
    [gauge.collect(), counter.collect()]
}

/// Sample `number` is the first of its window: windows begin with seconds.
fn first_us(begin_us: i64) -> i64 {
    begin_us + OFFSET as i64 * SPACING_US
}

/// Job with a node of its own.
struct Node {
    session: Arc<SessionRecord>,
    job: Arc<JobRecord>,
    line: Arc<LedgerLine>,
    series: Vec<Arc<SeriesRecord>>,
}

impl Node {
    fn new(number: u64, job_id: &str, started_us: i64) -> Self {
        let name = |text: &str| Identifier::try_from(text).unwrap();
        let descriptor = SessionDescriptor {
            node: name(&format!("n{number}")),
            agent_version: name("1"),
            started_us,
            processors: Default::default(),
        };
        let session = Arc::new(SessionRecord { id: SessionId(number), descriptor });
        let descriptor = JobDescriptor {
            job_id: name(job_id),
            cluster: None,
            owner_uid: Some(1000),
            owner: Some(name("alice")),
            started_us,
        };
        let (handle, key) = (JobHandle(1), StoreId::none());
        let job = Arc::new(JobRecord { session: Arc::clone(&session), handle, descriptor, key });
        let series = METRICS.map(|(metric, kind, unit)| {
            let name = MetricName::new(metric).unwrap();
            Arc::new(SeriesRecord {
                session: Arc::clone(&session),
                metric: Arc::new(MetricDescriptor { name, unit, kind, number: Number::Float }),
                job: Some(Arc::clone(&job)),
                labels: Arc::new(Labels::new(Vec::new()).unwrap()),
                id: StoreId::none(),
            })
        });
        let line = LedgerLine {
            session: Arc::clone(&session),
            job: Some(Arc::clone(&job)),
            source: name("s"),
            id: StoreId::none(),
        };
        Self { session, job, line: Arc::new(line), series: series.into() }
    }

    fn block(&self, times_us: Vec<i64>, values: Vec<u64>, windows: Option<WindowColumns>) -> SampleBlock {
        SampleBlock { line: Arc::clone(&self.line), series: self.series.clone(), times_us, values, windows }
    }

    /// Every sample.
    fn samples(&self, begin_us: i64) -> SampleBlock {
        let times_us = (0..SAMPLES as i64).map(|number| first_us(begin_us) + number * SPACING_US);
        let values = values().iter().flatten().map(|value| value.to_bits()).collect();
        self.block(times_us.collect(), values, None)
    }

    /// The same samples as windows.
    fn windows(&self, begin_us: i64) -> SampleBlock {
        let mut columns = WindowColumns::default();
        let (mut times_us, mut last) = (Vec::new(), Vec::new());
        for (position, values) in values().iter().enumerate() {
            times_us.clear();
            let mut begin = 0;
            while begin < SAMPLES {
                let end = SAMPLES.min(if begin == 0 { SIZE - OFFSET } else { begin + SIZE });
                let own = &values[begin..end];
                let rates: Vec<f64> = rates(&values[begin.saturating_sub(1)..end]);
                let extremes = if position == 0 { own } else { &rates };
                columns.counts.push(own.len() as u64);
                columns.min.push(extremes.iter().copied().fold(f64::NAN, f64::min));
                columns.max.push(extremes.iter().copied().fold(f64::NAN, f64::max));
                columns.sum.push(own.iter().sum());
                last.push(own[own.len() - 1].to_bits());
                times_us.push(first_us(begin_us) + (end as i64 - 1) * SPACING_US);
                begin = end;
            }
        }
        self.block(times_us, last, Some(columns))
    }

    /// Histograms of the gauge in the windows of a block.
    fn histograms(&self, block: &SampleBlock) -> Vec<HistogramRecord> {
        let mut records = Vec::new();
        let mut begin = 0;
        for time_us in &block.times_us {
            let end = SAMPLES.min(if begin == 0 { SIZE - OFFSET } else { begin + SIZE });
            let mut histogram = histogram::empty().unwrap();
            for value in &values()[0][begin..end] {
                histogram.increment(*value as u64).unwrap();
            }
            let counts = histogram::buckets(&histogram).map(|(bucket, count)| (bucket, count.into()));
            let (series, counts) = (Arc::clone(&self.series[0]), counts.collect());
            records.push(HistogramRecord { series, time_us: *time_us, counts });
            begin = end;
        }
        records
    }

    fn frame(&self, sequence: u64, begin_us: i64) -> Accepted {
        Accepted::empty(Arc::clone(&self.session), sequence, begin_us + HOUR_US)
    }
}

fn rates(values: &[f64]) -> Vec<f64> {
    values.windows(2).map(|pair| (pair[1] - pair[0]) * 1e6 / SPACING_US as f64).collect()
}

fn open(environment: &TestEnvironment) -> Store {
    let use_of = |kind| if environment.kind == kind { ExtensionMode::Require } else { ExtensionMode::Off };
    let options = OpenOptions {
        may_create: true,
        timescale: use_of(Kind::Timescale),
        citus: use_of(Kind::Citus),
        ..OpenOptions::default()
    };
    Store::open(&environment.url(), &options).unwrap()
}

/// Stores job `1` with each sample, and job `2` with windows. Returns the number of windows.
fn store(environment: &TestEnvironment, begin_us: i64) -> usize {
    let nodes = ["1", "2"].map(|job| Node::new(job.parse().unwrap(), job, begin_us));
    let mut store = open(environment);
    let blocks = [nodes[0].samples(begin_us), nodes[1].windows(begin_us)];
    let windows = blocks[1].times_us.len();
    let frames: Vec<Accepted> = nodes
        .iter()
        .zip(blocks)
        .map(|(node, block)| {
            let mut frame = node.frame(1, begin_us);
            if block.windows.is_some() {
                frame.histograms = node.histograms(&block);
            }
            frame.samples.push(block);
            frame.job_ends.push((Arc::clone(&node.job), begin_us + 181 * 1_000_000));
            frame
        })
        .collect();
    let committed = store.commit(&frames).unwrap();
    assert_eq!(committed.rows, (2 * 2 * SAMPLES) as u64);
    windows
}

fn windows_have_the_figures_of_their_samples(environment: &mut TestEnvironment) {
    let begin_us = begin_us();
    let windows = store(environment, begin_us);
    let rows = |job: u32| {
        let of_job = format!("FROM samples JOIN series USING (series_id) WHERE job_id = '{job}'");
        let count = format!("SELECT count(*) {of_job}");
        let samples = format!("SELECT CAST(sum(coalesce(count, 1)) AS bigint) {of_job}");
        (environment.number(&count), environment.number(&samples))
    };
    assert_eq!(rows(1), (2 * SAMPLES as i64, 2 * SAMPLES as i64));
    assert_eq!(rows(2), (2 * windows as i64, 2 * SAMPLES as i64));
    let stored = "SELECT CAST(sum(stored) AS bigint) FROM ledger_balance WHERE job_key = (SELECT job_key FROM job WHERE job_id = '2')";
    assert_eq!(environment.number(stored), 2 * SAMPLES as i64);
    assert_eq!(environment.number("SELECT CAST(sum(stored) AS bigint) FROM session"), 4 * SAMPLES as i64);
    // Behind the computed buckets, and in them.
    assert_rollups(environment, begin_us);
    assert_views_agree(environment);
    let collector = environment.collector();
    // TimescaleDB computes up to the last bucket that has samples.
    let lasts_us = if environment.kind == Kind::Timescale { 180 * 1_000_000 } else { HOUR_US };
    wait_until_computed(environment, begin_us + lasts_us);
    wait_until("the rollups are right", || rollup_difference(environment, begin_us).is_none());
    collector.stop().unwrap();
    assert_views_agree(environment);
    assert_reports(environment);
}

/// Count, sum, extremes and rates of a series in a bucket.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Figures {
    count: f64,
    min: f64,
    max: f64,
    mean: f64,
    rates: Option<(f64, f64)>,
}

/// Computes the buckets from each sample. The mean of those of more than 10 s is that of the means of 10 s.
fn expected(begin_us: i64, metric: usize, width_us: i64) -> BTreeMap<i64, Figures> {
    let all = &values()[metric];
    let mut tens: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    let mut own: BTreeMap<i64, Vec<(f64, Option<f64>)>> = BTreeMap::new();
    for (number, value) in all.iter().enumerate() {
        let time_us = first_us(begin_us) + number as i64 * SPACING_US;
        let rate = number.checked_sub(1).map(|before| rates(&[all[before], *value])[0]);
        tens.entry(time_us / 10_000_000 * 10_000_000).or_default().push(*value);
        own.entry(time_us / width_us * width_us).or_default().push((*value, rate));
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let figures = |(bucket_us, values): (&i64, &Vec<(f64, Option<f64>)>)| {
        let means: Vec<f64> =
            tens.range(bucket_us..&(bucket_us + width_us)).map(|(_, values)| mean(values)).collect();
        let numbers = || values.iter().map(|(value, _)| *value);
        let rates = || values.iter().filter_map(|(_, rate)| *rate);
        let figures = Figures {
            count: values.len() as f64,
            min: numbers().fold(f64::NAN, f64::min),
            max: numbers().fold(f64::NAN, f64::max),
            mean: mean(&means),
            rates: (metric == 1)
                .then(|| (rates().fold(f64::NAN, f64::min), rates().fold(f64::NAN, f64::max))),
        };
        (*bucket_us, figures)
    };
    own.iter().map(figures).collect()
}

fn assert_rollups(environment: &TestEnvironment, begin_us: i64) {
    assert_eq!(rollup_difference(environment, begin_us), None);
}

/// First difference between the rollups of both jobs and the samples.
fn rollup_difference(environment: &TestEnvironment, begin_us: i64) -> Option<String> {
    for (relation, width_us) in
        [("samples_10s", 10_000_000), ("samples_1min", 60_000_000), ("samples_1h", HOUR_US)]
    {
        for (metric, job) in [(0, 1), (0, 2), (1, 1), (1, 2)] {
            let expected = expected(begin_us, metric, width_us);
            let found = buckets(environment, relation, METRICS[metric].0, job);
            if found.len() != expected.len() {
                return Some(format!("{relation}, job {job}: {} of {} buckets", found.len(), expected.len()));
            }
            for (bucket_us, expected) in expected {
                let Some(found) = found.get(&bucket_us) else {
                    return Some(format!("{relation} lacks {bucket_us}"));
                };
                // The store has a counter's last values only, and no rates of samples.
                let is_counter = metric == 1;
                let is_near = is_counter || (found.mean - expected.mean).abs() < 1e-9 * expected.mean;
                let rates = expected.rates.filter(|_| job == 2);
                let expected = if is_counter {
                    Figures { count: expected.count, rates, ..*found }
                } else {
                    Figures { mean: found.mean, rates, ..expected }
                };
                if *found != expected || !is_near {
                    return Some(format!("{relation}, job {job}: {found:?} in place of {expected:?}"));
                }
            }
        }
    }
    None
}

fn buckets(environment: &TestEnvironment, relation: &str, metric: &str, job: u32) -> BTreeMap<i64, Figures> {
    let time = match environment.kind {
        Kind::Sqlite => "time / 1000",
        Kind::Postgres | Kind::Timescale | Kind::Citus => "CAST(extract(epoch FROM time) * 1000000 AS int8)",
    };
    let query = format!(
        "SELECT {time}, count, min, max, sum / parts, coalesce(rate_min, -1), coalesce(rate_max, -1)
         FROM {relation} AS bucket JOIN series ON series.series_id = bucket.series_id
         WHERE metric = '{metric}' AND job_id = '{job}'"
    );
    let rows = environment.rows(&query);
    let figures = rows.iter().map(|row| {
        let rates = (row[5] >= 0.0).then_some((row[5], row[6]));
        let figures = Figures { count: row[1], min: row[2], max: row[3], mean: row[4], rates };
        (row[0] as i64, figures)
    });
    figures.collect()
}

/// The minutes of the gauge of both jobs are the same for users.
fn assert_views_agree(environment: &TestEnvironment) {
    for view in ["metrics_by_job_summary", "metrics_summary"] {
        let of_device = |device: &str| {
            format!(
                "SELECT timestamp, value FROM {view} WHERE device_id = '{device}' AND metric_id = 'memory.current'"
            )
        };
        let differing = format!(
            "SELECT count(*) FROM ({}) AS a JOIN ({}) AS b ON b.timestamp = a.timestamp WHERE abs(a.value - b.value) < 1e-6",
            of_device("n1"),
            of_device("n2")
        );
        assert_eq!(environment.number(&differing), 4, "{view}: minutes that agree");
    }
}

fn assert_reports(environment: &TestEnvironment) {
    let reports: Vec<_> =
        environment.jobs().iter().map(|job| gather(&mut environment.reader(), job, None).unwrap()).collect();
    assert_eq!(reports.len(), 2);
    let [gauge, counter] = values();
    let is_near = |found: Option<f64>, expected: f64| {
        let found = found.unwrap();
        assert!((found - expected).abs() <= 1e-9 * expected, "{found} in place of {expected}");
    };
    for report in &reports {
        let of = |metric: &str| -> &SeriesReport {
            report.series.iter().find(|series| series.metric == metric).unwrap()
        };
        let (memory, instructions) = (of("memory.current"), of("perf.instructions"));
        assert_eq!(
            (memory.samples, instructions.samples),
            (SAMPLES as u64, SAMPLES as u64),
            "{}",
            report.job
        );
        is_near(memory.mean, gauge.iter().sum::<f64>() / SAMPLES as f64);
        assert_eq!(memory.max, gauge.iter().copied().reduce(f64::max));
        assert_eq!(memory.min, gauge.iter().copied().reduce(f64::min));
        let (first, last) = (counter[0], counter[SAMPLES - 1]);
        let rates = rates(&counter);
        is_near(instructions.max, rates.iter().copied().fold(0.0, f64::max));
        is_near(instructions.min.map(|min| min + 1.0), rates.iter().copied().fold(f64::NAN, f64::min) + 1.0);
        assert_distribution(report, &gauge);
        match report.job.as_str() {
            "1" => assert_eq!((instructions.growth, instructions.inner_s), (Some(last - first), None)),
            _ => {
                // The first value is the last of the first window.
                assert_eq!(instructions.growth, Some(last - counter[SIZE - OFFSET - 1]));
                assert_eq!(instructions.inner_s, Some(SPACING_US as f64 / 1e6));
            }
        }
    }
    let mut reader = environment.reader();
    for job in environment.jobs() {
        let scope = SeriesScope::Job(job.job_key);
        let ids = reader.series(scope).unwrap().iter().map(|row| row.series_id).collect();
        let mut count = 0;
        reader
            .samples(scope, &ids, &job.sampled_ns, |row| {
                assert_eq!(row.window.is_some(), job.job_id == "2");
                count += row.count();
                Ok::<_, polymeter_store::StoreError>(())
            })
            .unwrap();
        assert_eq!(count, 2 * SAMPLES as u64);
    }
}

/// The quantiles of the job with windows are those of the sorted values.
fn assert_distribution(report: &Report, values: &[f64]) {
    if report.job == "1" {
        assert_eq!(report.distributions, []);
        return;
    }
    let [found] = report.distributions.as_slice() else { panic!("{:?}", report.distributions) };
    assert_eq!((found.metric.as_str(), found.samples), ("memory.current", values.len() as u64));
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    for (found, percent) in [(found.p50, 50), (found.p90, 90), (found.p99, 99), (found.max, 100)] {
        let expected = sorted[(sorted.len() * percent).div_ceil(100) - 1];
        assert!(
            (found - expected).abs() <= expected * histogram::ERROR,
            "{percent}: {found}, not {expected}"
        );
    }
}

/// Samples in the histograms of a job.
fn in_histograms(environment: &TestEnvironment, job: &str) -> i64 {
    let sum = "SELECT CAST(coalesce(sum(count), 0) AS bigint) FROM window_histogram";
    environment.number(&format!("{sum} WHERE job_key = (SELECT job_key FROM job WHERE job_id = '{job}')"))
}

fn histograms_go_with_their_samples(environment: &mut TestEnvironment) {
    let begin_us = begin_us();
    store(environment, begin_us);
    let node = Node::new(3, "old", begin_us - 40 * 24 * HOUR_US);
    let mut frame = node.frame(1, begin_us - 40 * 24 * HOUR_US);
    let block = node.windows(begin_us - 40 * 24 * HOUR_US);
    frame.histograms = node.histograms(&block);
    frame.samples.push(block);
    open(environment).commit(&[frame]).unwrap();
    assert_eq!(["2", "old"].map(|job| in_histograms(environment, job)), [SAMPLES as i64; 2]);
    environment.execute("UPDATE job SET ended = started; UPDATE job_node SET ended = started");
    let keep = Keep::Days(30);
    let retention = Retention { samples: keep, ten_seconds: keep, minute: keep, hour: Keep::Forever };
    set_retention(&environment.url(), &retention).unwrap();
    prune(&environment.url(), None, |_, _| ()).unwrap();
    assert_eq!(["2", "old"].map(|job| in_histograms(environment, job)), [SAMPLES as i64, 0]);
}

fn windows_of_unlikely_times_are_quarantined(environment: &mut TestEnvironment) {
    let begin_us = begin_us();
    let node = Node::new(1, "1", begin_us);
    let mut frame = node.frame(1, begin_us);
    frame.quarantined.push(node.windows(begin_us - 100 * 24 * HOUR_US));
    let committed = open(environment).commit(&[frame]).unwrap();
    assert_eq!((committed.rows, committed.quarantined), (0, 2 * SAMPLES as u64));
    let sums = "SELECT CAST(sum(count) AS bigint) FROM samples_quarantine WHERE max >= min";
    assert_eq!(environment.number(sums), 2 * SAMPLES as i64);
    let counters = "SELECT count(*) FROM samples_quarantine WHERE sum IS NULL";
    let all = "SELECT count(*) FROM samples_quarantine";
    assert_eq!(2 * environment.number(counters), environment.number(all));
    let stored = "SELECT CAST(sum(quarantined) AS bigint) FROM ledger";
    assert_eq!(environment.number(stored), 2 * SAMPLES as i64);
}
