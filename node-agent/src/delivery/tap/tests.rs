//! Watchers of different selections and speeds.

use polymeter_proto::batch::{Instant, Job};
use polymeter_proto::name::MetricName;
use polymeter_proto::period::Period;
use polymeter_proto::series::{
    Identifier, JobDescriptor, Kind, Labels, MetricDescriptor, MetricId, Number, SeriesId, ShapeId, Unit,
};

use super::*;

fn column(number: u32, name: &str) -> Column {
    let name = MetricName::new(name.to_owned()).unwrap();
    let metric = MetricDescriptor { name, unit: Unit::Count, kind: Kind::Gauge, number: Number::Signed };
    Column { series: SeriesId(number), metric: (MetricId(number), metric), labels: Labels::default() }
}

fn shape(job: u32, metrics: &[&str]) -> Arc<Shape> {
    let descriptor = JobDescriptor {
        job_id: Identifier::try_from("x").unwrap(),
        cluster: None,
        owner_uid: None,
        owner: None,
        started_us: 0,
    };
    Arc::new(Shape {
        id: ShapeId(1),
        source: Identifier::try_from("s").unwrap(),
        job: Some(Arc::new(Job { handle: JobHandle(job), descriptor })),
        period: Period::SECOND,
        window: None,
        columns: (0..).zip(metrics).map(|(number, name)| column(number, name)).collect(),
    })
}

fn batch(shapes: &[Arc<Shape>], rows: i64) -> Batch {
    let mut batch = Batch::default();
    for shape in shapes {
        let index = batch.add_shape(shape);
        for time_us in 0..rows {
            let instant = Instant { deadline: None, time_us };
            let columns = 0..shape.columns.len();
            let values = columns.map(|column| (column == 0 || time_us > 0).then_some(u64::MAX));
            batch.push(index, instant, values).unwrap();
        }
    }
    batch
}

/// Samples that are queued for the watcher: metrics, times and values.
fn queued(receiver: &mut WatchReceiver) -> Vec<(String, Vec<i64>, Vec<f64>)> {
    let mut queued = Vec::new();
    while let Ok(excerpts) = receiver.queue.try_recv() {
        queued.extend(excerpts.into_iter().map(|excerpt| {
            let name = excerpt.series().unwrap().metric.1.name.as_str().to_owned();
            (name, excerpt.times_us, excerpt.values)
        }));
    }
    queued
}

fn selectors(patterns: &[&str]) -> Vec<Selector> {
    patterns.iter().map(|pattern| pattern.parse().unwrap()).collect()
}

#[test]
fn a_watcher_gets_the_selected_metrics_of_its_job() {
    let tap = Arc::new(Tap::default());
    let mut one = tap.watch(Some(JobHandle(1)), selectors(&["a.*"]));
    let mut all = tap.watch(Some(JobHandle(1)), Vec::new());
    let mut other = tap.watch(Some(JobHandle(3)), Vec::new());
    let mut node = tap.watch(None, Vec::new());
    tap.publish(&batch(&[shape(1, &["a.x", "b.y"]), shape(2, &["a.x"])], 2));
    let x = ("a.x".to_owned(), vec![0, 1], vec![-1.0, -1.0]);
    let y = ("b.y".to_owned(), vec![1], vec![-1.0]);
    assert_eq!(queued(&mut one), std::slice::from_ref(&x));
    assert_eq!(queued(&mut all), [x, y], "absent values are omitted");
    assert!(queued(&mut other).is_empty() && queued(&mut node).is_empty());
}

#[test]
fn a_slow_watcher_gets_the_number_of_missed_samples() {
    let tap = Arc::new(Tap::default());
    let mut receiver = tap.watch(Some(JobHandle(1)), Vec::new());
    let batch = batch(&[shape(1, &["a.x"])], 30_000);
    (0..4).for_each(|_| tap.publish(&batch));
    assert_eq!(queued(&mut receiver).len(), 2);
    assert_eq!((receiver.take_lagged(), receiver.take_lagged()), (60_000, 0));
    let small = self::batch(&[shape(1, &["a.x"])], 1);
    let mut receiver = tap.watch(Some(JobHandle(1)), Vec::new());
    (0..100).for_each(|_| tap.publish(&small));
    assert_eq!(queued(&mut receiver).len(), BATCHES_WAITING);
    assert_eq!(receiver.take_lagged(), 100 - BATCHES_WAITING as u64);
}

#[test]
fn receiving_makes_room() {
    let tap = Arc::new(Tap::default());
    let mut receiver = tap.watch(Some(JobHandle(1)), Vec::new());
    let batch = batch(&[shape(1, &["a.x"])], 60_000);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for _ in 0..3 {
        tap.publish(&batch);
        assert_eq!(runtime.block_on(receiver.next()).unwrap().len(), 1);
    }
    assert_eq!(receiver.take_lagged(), 0);
}

#[test]
fn the_end_of_a_job_ends_its_watches_after_the_last_sample() {
    let tap = Arc::new(Tap::default());
    let mut receiver = tap.watch(Some(JobHandle(1)), Vec::new());
    let node = tap.watch(None, Vec::new());
    tap.publish(&batch(&[shape(1, &["a.x"])], 1));
    tap.note(&Event::JobEnded { job: JobHandle(1), at_us: 1 });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert_eq!(runtime.block_on(receiver.next()).unwrap().len(), 1);
    assert!(runtime.block_on(receiver.next()).is_none());
    assert!(tap.is_watched());
    drop(node);
    assert!(!tap.is_watched());
}
