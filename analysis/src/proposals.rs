//! Proposals for the request of a job, from what earlier jobs like it needed. Pure.
//!
//! The next job is like the earlier ones, as far as anyone knows: then it needs no more than the most of `n`
//! of them with a probability of `n / (n + 1)`, whatever the distribution. For the rest, the most is exceeded
//! by a margin, and the proposal is at least the upper end of the 95 % prediction interval of a lognormal
//! distribution. A sufficient request is never raised.

use polymeter_proto::units::to_f64;
use polymeter_store::reader::{JobRow, JobUsage};
use serde::Serialize;

use crate::model::Resource;
use crate::statistics::{Estimate, quantile};

/// Finished jobs from which on there are proposals.
pub const JOBS_MIN: usize = 5;

/// Finished jobs that count, those that started last: programs and inputs change.
const JOBS_MAX: usize = 200;

const MARGIN: f64 = 1.1;

/// A job that reached its limit is taken to have needed this multiple of it.
const BEYOND_LIMIT: f64 = 1.5;

/// A peak is rounded down by up to this share of a core: it is measured between two samples.
const PART_OF_CORE: f64 = 0.1;

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Request {
    pub name: Option<String>,
    /// Account or project.
    pub account: Option<String>,
    /// Queue or partition.
    pub queue: Option<String>,
    pub nodes: Option<f64>,
    /// Sum over all nodes.
    pub cores: Option<f64>,
    pub time_limit_s: Option<f64>,
    /// Amount on each node.
    pub memory_bytes: Option<f64>,
    /// Sum over all nodes.
    pub gpus: Option<f64>,
}

impl Request {
    /// Completes the request from another.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            name: self.name.or(other.name),
            account: self.account.or(other.account),
            queue: self.queue.or(other.queue),
            nodes: self.nodes.or(other.nodes),
            cores: self.cores.or(other.cores),
            time_limit_s: self.time_limit_s.or(other.time_limit_s),
            memory_bytes: self.memory_bytes.or(other.memory_bytes),
            gpus: self.gpus.or(other.gpus),
        }
    }

    pub fn of(job: &JobRow) -> Self {
        let known = |value: Option<i64>| {
            value.and_then(|value| u64::try_from(value).ok()).filter(|value| *value > 0).map(to_f64)
        };
        Self {
            name: job.name.clone(),
            account: job.account.clone(),
            queue: job.queue.clone(),
            nodes: job.usage.as_ref().and_then(|usage| usage.nodes),
            cores: known(job.cores),
            time_limit_s: known(job.time_limit_s),
            memory_bytes: known(job.memory_bytes),
            gpus: known(job.gpus),
        }
    }
}

/// Jobs that are like a request, the one that started last first.
#[derive(Debug)]
pub struct Like<'a> {
    /// What they have in common with it.
    pub by: &'static str,
    pub jobs: Vec<&'a JobRow>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Proposal {
    pub resource: Resource,
    /// Seconds, bytes on a node, cores or GPUs; none if it is not known.
    pub requested: Option<f64>,
    /// Jobs whose need is known.
    pub jobs: usize,
    pub median: f64,
    /// Contains the median with a probability of 95 % or more; none for too few jobs.
    pub median_interval: Option<(f64, f64)>,
    /// Most that one of them needed.
    pub most: f64,
    pub proposed: f64,
    /// Least probability that the next job needs no more than `most`.
    pub fits_at_least: f64,
}

/// Last part of a name without its numbers, which distinguish the runs of one program.
fn family(name: &str) -> String {
    name.chars()
        .filter(|letter| !letter.is_ascii_digit())
        .collect::<String>()
        .trim_end_matches(['_', '-', '.'])
        .to_owned()
}

/// Tells whether two values may be the same, as far as they are known.
fn agree<T: PartialEq>(one: &Option<T>, other: &Option<T>) -> bool {
    one.is_none() || other.is_none() || one == other
}

/// Chooses the `jobs` that are like a request: they have its name, and as far as enough of them do also its
/// account, queue, cores and GPUs. A name that differs in numbers only counts if no other does.
pub fn like<'a>(jobs: &'a [JobRow], request: &Request) -> Like<'a> {
    let family_of = |name: &Option<String>| name.as_deref().map(family).filter(|name| !name.is_empty());
    let finished = |jobs: &[&JobRow]| jobs.iter().filter(|job| has_finished(job)).count();
    let named: Vec<&JobRow> =
        jobs.iter().filter(|job| job.name.is_some() && job.name == request.name).collect();
    let (by, named) = if finished(&named) >= JOBS_MIN {
        ("name", named)
    } else {
        let wanted = family_of(&request.name);
        let like_it = jobs.iter().filter(|job| wanted.is_some() && family_of(&job.name) == wanted);
        ("name without its numbers", like_it.collect())
    };
    let sized: Vec<&JobRow> = named
        .iter()
        .copied()
        .filter(|job| {
            let of = Request::of(job);
            agree(&of.cores, &request.cores) && agree(&of.gpus, &request.gpus)
        })
        .collect();
    let placed: Vec<&JobRow> = sized
        .iter()
        .copied()
        .filter(|job| agree(&job.account, &request.account) && agree(&job.queue, &request.queue))
        .collect();
    match (by, finished(&sized) >= JOBS_MIN, finished(&placed) >= JOBS_MIN) {
        ("name", _, true) => Like { by: "name, size, account and queue", jobs: placed },
        ("name", true, false) => Like { by: "name and size", jobs: sized },
        (_, true, _) => Like { by: "name without its numbers, and size", jobs: sized },
        (by, false, _) => Like { by, jobs: named },
    }
}

/// How a job ended, as far as that says what the job needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Did its work.
    Finished,
    TimedOut,
    OutOfMemory,
    /// Failed, or was cancelled, which says nothing.
    Other,
}

fn end(job: &JobRow) -> End {
    let state = job.state.as_deref().map(str::to_ascii_uppercase);
    match state.as_deref() {
        Some("COMPLETED" | "TERMINATED") => End::Finished,
        Some("TIMEOUT" | "DEADLINE") => End::TimedOut,
        Some("OUT_OF_MEMORY") => End::OutOfMemory,
        None if job.exit_code.unwrap_or(0) == 0 && job.exit_signal.unwrap_or(0) == 0 => End::Finished,
        Some(_) | None => End::Other,
    }
}

/// Tells whether the job did its work, and what it used is known.
pub fn has_finished(job: &JobRow) -> bool {
    end(job) == End::Finished && job.usage.is_some()
}

/// None if it is not known.
fn need(job: &JobRow, resource: Resource) -> Option<f64> {
    let (end, usage) = (end(job), job.usage.as_ref()?);
    let request = Request::of(job);
    match (resource, end) {
        (_, End::Other) | (Resource::Time, End::OutOfMemory) => None,
        (Resource::Time, End::TimedOut) => {
            Some(BEYOND_LIMIT * request.time_limit_s.unwrap_or(usage.elapsed_s))
        }
        (Resource::Time, End::Finished) => Some(usage.elapsed_s),
        (Resource::Memory, End::OutOfMemory) => {
            Some(BEYOND_LIMIT * usage.memory_request_bytes.or(usage.memory_used_bytes)?)
        }
        (Resource::Memory, End::Finished | End::TimedOut) => memory(usage),
        (Resource::Cpu, _) => usage.cores_peak.map(|peak| (peak - PART_OF_CORE).ceil().max(1.0)),
        (Resource::Gpu, _) => usage.gpus_used.filter(|_| usage.gpus.is_some()),
    }
    .filter(|need| need.is_finite() && *need > 0.0)
}

/// Memory that a job needed on a node: what it used between two samples counts, as far as the kernel has
/// counted it without the page cache.
fn memory(usage: &JobUsage) -> Option<f64> {
    usage.memory_used_bytes.into_iter().chain(usage.memory_bound_bytes).reduce(f64::max)
}

/// Proposes a request from what `jobs` needed, the one that started last first.
pub fn propose(jobs: &[&JobRow], request: &Request) -> Vec<Proposal> {
    let finished = jobs.iter().filter(|job| has_finished(job)).count();
    if finished < JOBS_MIN {
        return Vec::new();
    }
    let requested = [
        (Resource::Time, request.time_limit_s),
        (Resource::Memory, request.memory_bytes),
        (Resource::Cpu, request.cores),
        (Resource::Gpu, request.gpus),
    ];
    requested.into_iter().filter_map(|(resource, requested)| of_resource(jobs, resource, requested)).collect()
}

fn of_resource(jobs: &[&JobRow], resource: Resource, requested: Option<f64>) -> Option<Proposal> {
    let mut needs: Vec<f64> = jobs.iter().filter_map(|job| need(job, resource)).take(JOBS_MAX).collect();
    if needs.len() < JOBS_MIN {
        return None;
    }
    needs.sort_by(f64::total_cmp);
    let (median, most) = (quantile(&needs, 50)?, *needs.last()?);
    let is_counted = matches!(resource, Resource::Cpu | Resource::Gpu);
    // A program that starts so many threads does so again.
    let (least, bound) = if is_counted { (most, most) } else { (MARGIN * most, upper_bound(&needs)) };
    let wanted = round(resource, least.max(bound));
    let proposed = match requested {
        Some(requested) if requested >= least => wanted.min(requested),
        Some(_) | None => wanted,
    };
    let count = to_f64(needs.len() as u64);
    Some(Proposal {
        resource,
        requested,
        jobs: needs.len(),
        median,
        median_interval: median_interval(&needs),
        most,
        proposed,
        fits_at_least: count / (count + 1.0),
    })
}

/// Upper end of the 95 % prediction interval of the next value, if the logarithms are normal.
fn upper_bound(needs: &[f64]) -> f64 {
    let logarithms: Vec<f64> = needs.iter().map(|need| need.ln()).collect();
    let estimate = Estimate::of(&logarithms);
    // The half-width of the mean, with the variance of the next value.
    let half = estimate.half * (to_f64(needs.len() as u64) + 1.0).sqrt();
    (estimate.mean + half).exp()
}

/// Values between which the median lies with a probability of 95 % or more, whatever the distribution: order
/// statistics, by the binomial distribution.
fn median_interval(sorted: &[f64]) -> Option<(f64, f64)> {
    let count = sorted.len();
    // The probability that `rank` values or fewer are below the median.
    let (mut probability, mut below, mut rank) = (0.5_f64.powi(i32::try_from(count).ok()?), 0.0, None);
    for number in 0..count / 2 {
        below += probability;
        if below > 0.025 {
            break;
        }
        rank = Some(number);
        probability *= to_f64((count - number) as u64) / to_f64(number as u64 + 1);
    }
    let rank = rank?;
    Some((*sorted.get(rank)?, *sorted.get(count - 1 - rank)?))
}

/// Rounds a request up, as people write them.
fn round(resource: Resource, value: f64) -> f64 {
    const MINUTE: f64 = 60.0;
    const GIB: f64 = 1_073_741_824.0;
    let unit = match resource {
        Resource::Time if value <= 60.0 * MINUTE => 5.0 * MINUTE,
        Resource::Time => 15.0 * MINUTE,
        Resource::Memory if value <= 4.0 * GIB => GIB / 4.0,
        Resource::Memory => GIB,
        Resource::Cpu | Resource::Gpu => 1.0,
    };
    (value / unit).ceil() * unit
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::job_row;

    const GIB: f64 = 1_073_741_824.0;

    fn job(state: &str, elapsed_s: f64, memory_gib: f64) -> JobRow {
        let usage = JobUsage {
            elapsed_s,
            cores: Some(8.0),
            cores_peak: Some(3.95),
            memory_request_bytes: Some(16.0 * GIB),
            memory_used_bytes: Some(memory_gib * GIB),
            ..JobUsage::default()
        };
        JobRow {
            name: Some("train".to_owned()),
            state: Some(state.to_owned()),
            cores: Some(8),
            time_limit_s: Some(86_400),
            usage: Some(usage),
            ..job_row("1")
        }
    }

    fn request() -> Request {
        Request {
            name: Some("train".to_owned()),
            cores: Some(8.0),
            time_limit_s: Some(86_400.0),
            memory_bytes: Some(16.0 * GIB),
            ..Request::default()
        }
    }

    fn proposals(jobs: &[JobRow], request: &Request) -> Vec<Proposal> {
        propose(&like(jobs, request).jobs, request)
    }

    fn proposed(jobs: &[JobRow], resource: Resource) -> Option<f64> {
        proposals(jobs, &request()).into_iter().find(|of| of.resource == resource).map(|of| of.proposed)
    }

    #[test]
    fn requests_shrink_to_what_jobs_need_and_a_margin() {
        let jobs: Vec<JobRow> = (0..40).map(|n| job("COMPLETED", 3500.0 + f64::from(n), 2.0)).collect();
        let found = proposals(&jobs, &request());
        let of = |resource| found.iter().find(|of| of.resource == resource).unwrap();
        let time = of(Resource::Time);
        assert_eq!((time.most, time.proposed, time.jobs), (3539.0, 4500.0, 40));
        assert!(time.median_interval.is_some_and(|(low, high)| low < time.median && time.median < high));
        assert!((time.fits_at_least - 40.0 / 41.0).abs() < 1e-12);
        assert_eq!((of(Resource::Memory).proposed, of(Resource::Cpu).proposed), (2.25 * GIB, 4.0));
        assert!(found.iter().all(|of| of.resource != Resource::Gpu));
    }

    #[test]
    fn no_proposal_is_below_what_a_finished_job_needed() {
        for seed in 1_u32..200 {
            let elapsed = |n: u32| f64::from((seed * 7919 + n * 104_729) % 50_000 + 1);
            let jobs: Vec<JobRow> =
                (0..5 + seed % 30).map(|n| job("COMPLETED", elapsed(n), elapsed(n + 99) / 4000.0)).collect();
            for of in proposals(&jobs, &request()) {
                assert!(of.proposed >= of.most, "{of:?}");
                assert!(
                    of.requested
                        .is_none_or(|requested| of.proposed <= requested || requested < MARGIN * of.most)
                );
            }
        }
    }

    #[test]
    fn limits_that_jobs_reached_are_raised() {
        let mut jobs: Vec<JobRow> = (0..6).map(|_| job("COMPLETED", 80_000.0, 2.0)).collect();
        jobs.push(job("TIMEOUT", 86_400.0, 2.0));
        jobs.push(job("OUT_OF_MEMORY", 100.0, 15.0));
        assert!(proposed(&jobs, Resource::Time).unwrap() >= 1.5 * 86_400.0);
        assert!(proposed(&jobs, Resource::Memory).unwrap() >= 24.0 * GIB);
    }

    #[test]
    fn few_and_failed_jobs_say_nothing() {
        let failed: Vec<JobRow> = (0..50).map(|_| job("FAILED", 10.0, 1.0)).collect();
        assert_eq!(proposals(&failed, &request()), []);
        let few: Vec<JobRow> = (1..JOBS_MIN).map(|_| job("COMPLETED", 10.0, 1.0)).collect();
        assert_eq!(proposals(&few, &request()), []);
        assert_eq!(proposals(&[], &Request::default()), []);
    }

    #[test]
    fn jobs_are_alike_by_name_and_by_size_where_there_are_enough() {
        let mut jobs: Vec<JobRow> = (0..6).map(|_| job("COMPLETED", 10.0, 1.0)).collect();
        jobs.extend((0..6).map(|_| JobRow { cores: Some(64), ..job("COMPLETED", 10.0, 1.0) }));
        jobs.extend(
            (0..6).map(|n| JobRow { name: Some(format!("case_{n}")), ..job("COMPLETED", 10.0, 1.0) }),
        );
        jobs.push(JobRow { name: None, ..job("COMPLETED", 10.0, 1.0) });
        let found = like(&jobs, &request());
        assert_eq!((found.by, found.jobs.len()), ("name, size, account and queue", 6));
        let other = Request { cores: Some(4.0), ..request() };
        assert_eq!((like(&jobs, &other).by, like(&jobs, &other).jobs.len()), ("name", 12));
        let case = Request { name: Some("case_77".to_owned()), ..Request::default() };
        assert_eq!(like(&jobs, &case).jobs.len(), 6);
        assert!(like(&jobs, &Request { name: Some("123".to_owned()), ..Request::default() }).jobs.is_empty());
        assert!(like(&jobs, &Request::default()).jobs.is_empty());
    }

    #[test]
    fn the_interval_of_the_median_is_that_of_the_tables() {
        let values = |count: u32| (1..=count).map(f64::from).collect::<Vec<_>>();
        assert_eq!(median_interval(&values(5)), None);
        assert_eq!(median_interval(&values(6)), Some((1.0, 6.0)));
        assert_eq!(median_interval(&values(10)), Some((2.0, 9.0)));
        assert_eq!(median_interval(&values(20)), Some((6.0, 15.0)));
        assert_eq!(median_interval(&values(200)), Some((86.0, 115.0)));
    }
}
