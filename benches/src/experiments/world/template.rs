//! The series of a job and their values, made from a recording.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use polymeter_benches::mock::Script;
use polymeter_benches::recording::RECORDED;
use polymeter_proto::batch::{Column, Job, Shape};
use polymeter_proto::catalogue;
use polymeter_proto::name::MetricName;
use polymeter_proto::period::Period;
use polymeter_proto::series::{
    Identifier, Kind, Labels, MetricDescriptor, MetricId, Number, SeriesId, ShapeId,
};

/// Distance in the recording, in ticks of a millisecond, between two samples: about a second, and prime, so
/// that the values do not repeat after ten samples.
const STRIDE: usize = 1_009;

/// Series that are added to those of the recording: source, metric, label `device`, the recorded metric whose
/// values it has, and the factor.
const ADDED: [(&str, &str, Option<&str>, &str, u64); 10] = [
    ("io.stat", "io.read.bytes", Some("8:0"), "memory.pgpgin", 4_096),
    ("io.stat", "io.read.bytes", Some("259:0"), "memory.pgmajfault", 65_536),
    ("io.stat", "io.write.bytes", Some("8:0"), "memory.pgpgout", 4_096),
    ("io.stat", "io.write.bytes", Some("259:0"), "memory.pgfault", 512),
    ("io.stat", "io.read.operations", Some("8:0"), "memory.pgpgin", 1),
    ("io.stat", "io.read.operations", Some("259:0"), "memory.pgmajfault", 16),
    ("io.stat", "io.write.operations", Some("8:0"), "memory.pgpgout", 1),
    ("io.stat", "io.write.operations", Some("259:0"), "memory.pgfault", 1),
    ("memory.current", "memory.current", None, "memory.anon", 1),
    ("memory.peak", "memory.peak", None, "memory.active_anon", 2),
];

/// Series of the node: metric, the recorded metric whose values it has, and the factor.
const OF_NODE: [(&str, &str, u64); 4] = [
    ("node.cpu.user", "cpu.user", 16),
    ("node.cpu.system", "cpu.system", 16),
    ("node.cpu.idle", "cpu.usage", 8),
    ("node.memory.available", "memory.anon", 64),
];

/// Source of the series of a step, and their metrics.
pub(crate) const STEP_SOURCE: &str = "steps";
const OF_STEP: [&str; 3] = ["cpu.usage", "cpu.user", "memory.anon"];

/// Recorded values of one metric.
#[derive(Debug)]
struct Trace {
    metric: MetricName,
    values: Vec<u64>,
}

impl Trace {
    /// Value of a gauge at a position; the recording is repeated.
    fn gauge(&self, position: usize) -> u64 {
        let position = position % self.values.len().max(1);
        self.values.get(position).copied().unwrap_or_default()
    }

    /// Increase of a counter from the first tick to a position.
    fn increase(&self, position: usize) -> u64 {
        let laps = position / self.values.len().max(1);
        let first = self.values.first().copied().unwrap_or_default();
        let of_lap = self.values.last().copied().unwrap_or_default().saturating_sub(first);
        of_lap * laps as u64 + self.gauge(position).saturating_sub(first)
    }
}

/// One series of every job or node.
#[derive(Debug)]
struct TemplateColumn {
    metric: (MetricId, MetricDescriptor),
    labels: Labels,
    trace: usize,
    factor: u64,
}

/// Series that are sampled together.
#[derive(Debug)]
struct TemplateShape {
    source: Identifier,
    columns: Vec<TemplateColumn>,
}

/// Series of every job, those of every node, and their values.
#[derive(Debug)]
pub(crate) struct Template {
    traces: Vec<Trace>,
    of_job: Vec<TemplateShape>,
    of_node: TemplateShape,
}

/// Part of the recording that a job repeats.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Excerpt {
    /// Number of the tick at which it starts.
    start: usize,
    /// Factor of counters: the period in seconds.
    scale: u64,
}

impl Template {
    pub(crate) fn read() -> Result<Self, Box<dyn Error>> {
        let script = Script::read(Path::new(RECORDED), Period::SECOND)?;
        let (mut traces, mut of_job) = (Vec::new(), Vec::new());
        for (number, shape) in script.shapes().iter().enumerate() {
            let first = traces.len();
            traces.extend(shape.columns.iter().map(|column| Trace {
                metric: column.metric.1.name.clone(),
                values: Vec::with_capacity(script.ticks()),
            }));
            for tick in 0..script.ticks() {
                for (_, values) in script.rows(tick).filter(|(shape, _)| *shape == number) {
                    for (trace, value) in traces.iter_mut().skip(first).zip(values) {
                        let last = trace.values.last().copied();
                        trace.values.push(value.or(last).unwrap_or_default());
                    }
                }
            }
            let columns = (first..).zip(&shape.columns).map(|(trace, column)| TemplateColumn {
                metric: column.metric.clone(),
                labels: Labels::default(),
                trace,
                factor: 1,
            });
            of_job.push(TemplateShape { source: shape.source.clone(), columns: columns.collect() });
        }
        let columns: Vec<_> = of_job.iter().flat_map(|shape| &shape.columns).collect();
        let next = columns.iter().map(|column| column.metric.0.0 + 1).max().unwrap_or(0);
        let mut metrics = Metrics { names: Vec::new(), next };
        let mut added: Vec<TemplateShape> = Vec::new();
        for (source, metric, device, recorded, factor) in ADDED {
            let labels = device.map(|device| ("device".to_owned(), device.to_owned()));
            let labels = Labels::new(labels.into_iter().collect())?;
            let column = metrics.column(metric, labels, &traces, recorded, factor)?;
            match added.iter_mut().find(|shape| shape.source.as_str() == source) {
                Some(shape) => shape.columns.push(column),
                None => added.push(TemplateShape { source: source.try_into()?, columns: vec![column] }),
            }
        }
        let column =
            |(metric, recorded, factor)| metrics.column(metric, Labels::default(), &traces, recorded, factor);
        let columns = OF_NODE.into_iter().map(column).collect::<Result<_, _>>()?;
        let of_node = TemplateShape { source: "node".try_into()?, columns };
        of_job.extend(added);
        Ok(Self { traces, of_job, of_node })
    }

    /// Shapes of a job with this number of series. `series` and `shape` are the first free ids.
    pub(crate) fn job_shapes(
        &self,
        count: usize,
        job: &Arc<Job>,
        period: Period,
        (series, shape): (u32, u32),
    ) -> Vec<Arc<Shape>> {
        let (mut left, mut series) = (count, series);
        let mut shapes = Vec::new();
        for (id, template) in (shape..).zip(&self.of_job) {
            let columns = template.columns.iter().take(left);
            let columns: Vec<_> = (series..).zip(columns).map(|(id, column)| column.series(id)).collect();
            left -= columns.len();
            series += u32::try_from(columns.len()).unwrap_or(0);
            if columns.is_empty() {
                break;
            }
            let (id, job) = (ShapeId(id), Some(Arc::clone(job)));
            shapes.push(Arc::new(Shape {
                id,
                job,
                source: template.source.clone(),
                period,
                window: None,
                columns,
            }));
        }
        shapes
    }

    pub(crate) fn step_shape(
        &self,
        job: &Arc<Job>,
        step: u32,
        period: Period,
        (series, shape): (u32, u32),
    ) -> Result<Arc<Shape>, Box<dyn Error>> {
        let labels = Labels::new(vec![("step".to_owned(), step.to_string())])?;
        let columns = (series..)
            .zip(self.step_columns())
            .map(|(id, column)| Column { labels: labels.clone(), ..column.series(id) });
        let (columns, source) = (columns.collect(), STEP_SOURCE.try_into()?);
        Ok(Arc::new(Shape {
            id: ShapeId(shape),
            job: Some(Arc::clone(job)),
            source,
            period,
            window: None,
            columns,
        }))
    }

    /// Values of a step in sample number `sample`.
    pub(crate) fn step_values(&self, excerpt: Excerpt, sample: u32) -> impl Iterator<Item = Option<u64>> {
        self.step_columns().map(move |column| Some(self.value(column, excerpt, sample)))
    }

    fn step_columns(&self) -> impl Iterator<Item = &TemplateColumn> {
        let all = self.of_job.iter().flat_map(|shape| &shape.columns);
        all.filter(|column| OF_STEP.contains(&column.metric.1.name.as_str()))
    }

    pub(crate) fn node_shape(&self, (series, shape): (u32, u32)) -> Arc<Shape> {
        let columns = (series..).zip(&self.of_node.columns).map(|(id, column)| column.series(id)).collect();
        let source = self.of_node.source.clone();
        Arc::new(Shape { id: ShapeId(shape), job: None, source, period: Period::HOUR, window: None, columns })
    }

    pub(crate) fn excerpt(&self, number: u64, period: Period) -> Excerpt {
        let ticks = self.traces.first().map_or(1, |trace| trace.values.len().max(1));
        let start = usize::try_from(number.wrapping_mul(7_919) % ticks as u64).unwrap_or(0);
        Excerpt { start, scale: (period.as_micros() / 1_000_000).max(1) }
    }

    /// Values of one shape of a job in sample number `sample`.
    pub(crate) fn values(
        &self,
        shape: usize,
        excerpt: Excerpt,
        sample: u32,
    ) -> impl Iterator<Item = Option<u64>> {
        let columns = self.of_job.get(shape).map(|shape| shape.columns.as_slice()).unwrap_or_default();
        columns.iter().map(move |column| Some(self.value(column, excerpt, sample)))
    }

    /// Values of a node in second `second` of its session.
    pub(crate) fn node_values(&self, second: u32) -> impl Iterator<Item = Option<u64>> {
        let excerpt = Excerpt { start: 0, scale: 1 };
        self.of_node.columns.iter().map(move |column| Some(self.value(column, excerpt, second)))
    }

    fn value(&self, column: &TemplateColumn, excerpt: Excerpt, sample: u32) -> u64 {
        let Some(trace) = self.traces.get(column.trace) else { return 0 };
        let position = excerpt.start + sample as usize * STRIDE;
        column.factor
            * match column.metric.1.kind {
                Kind::Counter => (trace.increase(position) - trace.increase(excerpt.start)) * excerpt.scale,
                Kind::Gauge => trace.gauge(position),
            }
    }
}

impl TemplateColumn {
    fn series(&self, id: u32) -> Column {
        Column { series: SeriesId(id), metric: self.metric.clone(), labels: self.labels.clone() }
    }
}

/// Names of the metrics of `shapes`, without duplicates.
pub(crate) fn metric_names(shapes: &[Arc<Shape>]) -> BTreeSet<&MetricName> {
    shapes.iter().flat_map(|shape| &shape.columns).map(|column| &column.metric.1.name).collect()
}

/// Ids of the metrics that are not in the recording.
struct Metrics {
    names: Vec<&'static str>,
    next: u32,
}

impl Metrics {
    /// Makes a column of a metric of the catalogue that has the values of a recorded one.
    fn column(
        &mut self,
        metric: &'static str,
        labels: Labels,
        traces: &[Trace],
        recorded: &str,
        factor: u64,
    ) -> Result<TemplateColumn, Box<dyn Error>> {
        let descriptor = catalogue::find(metric).and_then(|metric| metric.descriptor());
        let descriptor = descriptor.ok_or_else(|| format!("{metric} is not in the catalogue"))?;
        let trace = traces.iter().position(|trace| trace.metric.as_str() == recorded);
        let trace = trace.ok_or_else(|| format!("{recorded} is not in the recording"))?;
        let known = self.names.iter().position(|name| *name == metric);
        let position = known.unwrap_or(self.names.len());
        if known.is_none() {
            self.names.push(metric);
        }
        let id = MetricId(self.next + u32::try_from(position)?);
        let descriptor = MetricDescriptor { number: Number::Unsigned, ..descriptor };
        Ok(TemplateColumn { metric: (id, descriptor), labels, trace, factor })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_never_decrease_and_gauges_are_recorded_values() {
        let template = Template::read().unwrap();
        let excerpt = template.excerpt(17, Period::SECOND);
        for (number, shape) in template.of_job.iter().enumerate() {
            let mut last = vec![0; shape.columns.len()];
            for sample in 0..200 {
                let values: Vec<u64> = template.values(number, excerpt, sample).flatten().collect();
                for ((column, last), value) in shape.columns.iter().zip(&last).zip(&values) {
                    let name = column.metric.1.name.as_str();
                    match column.metric.1.kind {
                        Kind::Counter => assert!(value >= last, "{name}: {value} after {last}"),
                        Kind::Gauge => {
                            let trace = &template.traces[column.trace].values;
                            assert!(trace.contains(&(value / column.factor)), "{name}: {value}");
                        }
                    }
                }
                last = values;
            }
            assert!(last.iter().any(|value| *value > 0), "{}", shape.source);
        }
    }

    #[test]
    fn a_job_has_as_many_series_as_wanted_with_ids_of_its_own() {
        let template = Template::read().unwrap();
        let job = Arc::new(super::super::node::tests::job());
        for wanted in [1, 45, 50, 60] {
            let shapes = template.job_shapes(wanted, &job, Period::SECOND, (100, 10));
            let ids: Vec<u32> =
                shapes.iter().flat_map(|shape| &shape.columns).map(|column| column.series.0).collect();
            assert_eq!(ids, (100..100 + u32::try_from(wanted).unwrap()).collect::<Vec<_>>());
        }
    }
}
