//! Errors of the node's GPUs, and the jobs that they concern: those that used the GPU since its reading
//! before, or else the only job of the node. Pure.

use std::collections::BTreeMap;

use polymeter_proto::batch::{Batch, Shape};
use polymeter_proto::series::{Identifier, JobHandle};
use polymeter_proto::trigger::{JOB_XID_METRIC, XID_METRIC, XID_NUMBER_METRICS, xid};

/// GPUs and jobs that are remembered; further ones are ignored.
const GPUS: usize = 256;
const JOBS: usize = 4096;

/// Sources of GPUs with such errors begin so. One source is one GPU, of the node and of jobs.
const SOURCES: &str = "nvidia/";

/// A job still uses a GPU that was its own so many periods ago.
const PERIODS: i64 = 2;

/// An error of a GPU that a job used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GpuError {
    pub(super) job: JobHandle,
    /// Microseconds since the epoch.
    pub(super) at_us: i64,
    pub(super) why: String,
}

#[derive(Debug, Default)]
pub(super) struct GpuErrors {
    gpus: BTreeMap<Identifier, Counted>,
    jobs: BTreeMap<JobHandle, Seen>,
}

/// Number of errors, and the time until which they were counted.
#[derive(Debug, Clone, Copy)]
struct Counted {
    errors: f64,
    at_us: i64,
}

#[derive(Debug)]
struct Seen {
    first_us: i64,
    ended_us: Option<i64>,
    /// Time until which the job uses a GPU.
    gpus: BTreeMap<Identifier, i64>,
}

impl Seen {
    fn is_there(&self, since_us: i64, until_us: i64) -> bool {
        self.first_us <= until_us && self.ended_us.is_none_or(|ended_us| ended_us >= since_us)
    }

    fn uses(&self, gpu: &Identifier, since_us: i64) -> bool {
        self.gpus.get(gpu).is_some_and(|used_us| *used_us >= since_us)
    }
}

impl GpuErrors {
    /// Takes samples of the node and its jobs. Returns the new errors, for each job that they concern.
    pub(super) fn take(&mut self, batch: &Batch) -> Vec<GpuError> {
        self.see_jobs(batch);
        let mut errors = Vec::new();
        let columns: Vec<_> = batch.shapes().iter().map(|shape| Columns::of(shape)).collect();
        if columns.iter().all(Option::is_none) {
            return errors;
        }
        for row in batch.recorded() {
            let shape = batch.shapes().get(row.shape);
            let (Some(shape), Some(Some(columns))) = (shape, columns.get(row.shape)) else { continue };
            let value = |column: usize| {
                let series = shape.columns.get(column)?;
                Some(series.metric.1.number.to_f64(row.value(column)?))
            };
            let Some(count) = value(columns.errors) else { continue };
            if let Some(since_us) = self.rise(&shape.source, count, row.time_us) {
                let why = xid(&columns.gpu, columns.number.and_then(value));
                let jobs = self.concerned(&shape.source, since_us, row.time_us).into_iter();
                errors.extend(jobs.map(|job| GpuError { job, at_us: row.time_us, why: why.clone() }));
            }
        }
        errors
    }

    fn see_jobs(&mut self, batch: &Batch) {
        let mut times: Vec<Option<(i64, i64)>> = vec![None; batch.shapes().len()];
        for row in batch.recorded() {
            if let Some(times) = times.get_mut(row.shape) {
                let (first_us, last_us) = times.unwrap_or((row.time_us, row.time_us));
                *times = Some((first_us.min(row.time_us), last_us.max(row.time_us)));
            }
        }
        for (shape, times) in batch.shapes().iter().zip(times) {
            let (Some(job), Some((first_us, last_us))) = (&shape.job, times) else { continue };
            if self.jobs.len() >= JOBS && !self.jobs.contains_key(&job.handle) {
                continue;
            }
            let new = || Seen { first_us, ended_us: None, gpus: BTreeMap::new() };
            let seen = self.jobs.entry(job.handle).or_insert_with(new);
            seen.first_us = seen.first_us.min(first_us);
            if shape.source.as_str().starts_with(SOURCES)
                && (seen.gpus.len() < GPUS || seen.gpus.contains_key(&shape.source))
            {
                let period_us = i64::try_from(shape.window.unwrap_or(shape.period).as_micros());
                let lasts_us = period_us.unwrap_or(i64::MAX).saturating_mul(PERIODS);
                let until_us = seen.gpus.entry(shape.source.clone()).or_insert(last_us);
                *until_us = last_us.saturating_add(lasts_us).max(*until_us);
            }
        }
    }

    /// Returns the time of the reading before if there are more errors since then. The first count is of
    /// errors before any rule.
    fn rise(&mut self, gpu: &Identifier, errors: f64, at_us: i64) -> Option<i64> {
        let known = self.gpus.get(gpu).copied();
        if known.is_none() && self.gpus.len() >= GPUS {
            return None;
        }
        let is_new = known.is_none_or(|known| at_us >= known.at_us);
        if is_new {
            self.gpus.insert(gpu.clone(), Counted { errors, at_us });
        }
        known.filter(|known| is_new && errors > known.errors).map(|known| known.at_us)
    }

    fn concerned(&self, gpu: &Identifier, since_us: i64, until_us: i64) -> Vec<JobHandle> {
        let there: Vec<(&JobHandle, &Seen)> =
            self.jobs.iter().filter(|(_, seen)| seen.is_there(since_us, until_us)).collect();
        if let [(only, _)] = there.as_slice() {
            return vec![**only];
        }
        let users = there.into_iter().filter(|(_, seen)| seen.uses(gpu, since_us));
        users.map(|(job, _)| *job).collect()
    }

    pub(super) fn ended(&mut self, job: JobHandle, at_us: i64) {
        if let Some(seen) = self.jobs.get_mut(&job) {
            seen.ended_us = Some(at_us);
        }
    }

    /// Forgets jobs that ended before a time, and the GPUs if there is no rule about them.
    pub(super) fn forget(&mut self, before_us: i64) {
        self.jobs.retain(|_, seen| seen.ended_us.is_none_or(|ended_us| ended_us >= before_us));
    }

    pub(super) fn forget_all(&mut self) {
        *self = Self::default();
    }
}

/// Columns of a shape about the errors of one GPU.
struct Columns {
    gpu: String,
    errors: usize,
    number: Option<usize>,
}

impl Columns {
    fn of(shape: &Shape) -> Option<Self> {
        let place = |metrics: &[&str]| {
            shape.columns.iter().position(|column| metrics.contains(&column.metric.1.name.as_str()))
        };
        let errors = place(&[XID_METRIC, JOB_XID_METRIC])?;
        let gpu = shape.columns.get(errors)?.labels.get("gpu").unwrap_or("?").to_owned();
        Some(Self { gpu, errors, number: place(&XID_NUMBER_METRICS) })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use polymeter_proto::batch::{Column, Instant, Job};
    use polymeter_proto::name::MetricName;
    use polymeter_proto::period::Period;
    use polymeter_proto::series::{
        JobDescriptor, Kind, Labels, MetricDescriptor, MetricId, Number, SeriesId, ShapeId, Unit,
    };

    use super::*;

    const S: i64 = 1_000_000;

    /// Batch with one row, of a job or of the node.
    fn row(job: Option<u32>, gpu: u32, at_s: i64, values: &[(&'static str, Option<u64>)]) -> Batch {
        let labels = Labels::new(vec![("gpu".to_owned(), gpu.to_string())]).unwrap();
        let column = |(number, (name, _)): (u32, &(&'static str, Option<u64>))| {
            let (name, number) = (MetricName::new(*name).unwrap(), MetricId(number));
            let (unit, kind) = (Unit::Count, Kind::Counter);
            Column {
                series: SeriesId(number.0),
                metric: (number, MetricDescriptor { name, unit, kind, number: Number::Unsigned }),
                labels: labels.clone(),
            }
        };
        let job = job.map(|number| {
            let descriptor = JobDescriptor {
                job_id: number.to_string().as_str().try_into().unwrap(),
                cluster: None,
                owner_uid: Some(1000),
                owner: None,
                started_us: 0,
            };
            Arc::new(Job { handle: JobHandle(number), descriptor })
        });
        let shape = Arc::new(Shape {
            id: ShapeId(gpu),
            job,
            source: format!("nvidia/{gpu}").as_str().try_into().unwrap(),
            period: Period::TEN_SECONDS,
            columns: (0..).zip(values).map(column).collect(),
            window: None,
        });
        let mut batch = Batch::default();
        let index = batch.add_shape(&shape);
        let instant = Instant { deadline: None, time_us: at_s * S };
        batch.push(index, instant, values.iter().map(|(_, value)| *value)).unwrap();
        batch
    }

    fn uses(errors: &mut GpuErrors, job: u32, gpu: u32, at_s: i64) {
        assert_eq!(errors.take(&row(Some(job), gpu, at_s, &[("gpu.memory.used", Some(1))])), []);
    }

    fn node(errors: &mut GpuErrors, gpu: u32, at_s: i64, count: u64) -> Vec<(u32, String)> {
        let last = (count > 0).then_some(79);
        let found =
            errors.take(&row(None, gpu, at_s, &[(XID_METRIC, Some(count)), ("node.gpu.xid.last", last)]));
        assert!(found.iter().all(|error| error.at_us == at_s * S));
        found.into_iter().map(|error| (error.job.0, error.why)).collect()
    }

    fn why(gpu: u32) -> String {
        format!("the driver reported an error of GPU {gpu} (XID 79)")
    }

    #[test]
    fn an_error_is_of_the_jobs_that_used_the_gpu_since_the_reading_before() {
        let mut errors = GpuErrors::default();
        uses(&mut errors, 1, 0, 100);
        uses(&mut errors, 2, 1, 100);
        assert_eq!(node(&mut errors, 0, 101, 5), [], "those before any rule");
        assert_eq!(node(&mut errors, 1, 101, 0), []);
        assert_eq!(node(&mut errors, 0, 111, 5), []);
        assert_eq!(node(&mut errors, 0, 121, 6), [(1, why(0))]);
        assert_eq!(node(&mut errors, 0, 121, 6), []);
        assert_eq!(node(&mut errors, 0, 115, 7), [], "out of order");
        // Job 1 dies of the error, and job 3 follows on its GPU before the next reading.
        uses(&mut errors, 1, 0, 125);
        errors.ended(JobHandle(1), 126 * S);
        uses(&mut errors, 3, 0, 129);
        assert_eq!(node(&mut errors, 0, 131, 7), [(1, why(0)), (3, why(0))]);
        assert_eq!(node(&mut errors, 0, 141, 8), [(3, why(0))], "job 1 has ended before");
        // Job 3 is given another GPU.
        uses(&mut errors, 3, 2, 170);
        assert_eq!(node(&mut errors, 0, 171, 9), [(3, why(0))], "it may have used it since 141 s");
        assert_eq!(node(&mut errors, 0, 181, 10), [], "of none of several jobs");
        errors.forget(127 * S);
        assert_eq!(errors.jobs.len(), 2);
    }

    #[test]
    fn the_only_job_of_the_node_has_all_errors() {
        let mut errors = GpuErrors::default();
        uses(&mut errors, 1, 0, 100);
        assert_eq!(node(&mut errors, 1, 101, 0), []);
        assert_eq!(node(&mut errors, 1, 111, 1), [(1, why(1))]);
        let of_job = row(Some(1), 1, 115, &[(JOB_XID_METRIC, Some(2)), ("cpu.usage", Some(1))]);
        let found = errors.take(&of_job);
        assert_eq!(found.len(), 1, "a job's own reading counts, too");
        assert_eq!(found[0].why, "the driver reported an error of GPU 1");
        assert_eq!(node(&mut errors, 1, 121, 2), [], "the same error");
        errors.ended(JobHandle(1), 122 * S);
        assert_eq!(node(&mut errors, 1, 131, 3), [(1, why(1))]);
        assert_eq!(node(&mut errors, 1, 141, 4), [], "nobody's");
    }
}
