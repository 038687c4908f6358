//! The jobs of the generated history: their times, nodes and owners.

use std::ops::Range;

use polymeter_benches::statistics::Random;
use polymeter_proto::period::Period;

use super::arguments::{Arguments, Extra};

/// Job id of the first past job; the others follow in the order of their begin.
pub(crate) const FIRST_JOB: u64 = 1_000_000;

pub(crate) const BIG_JOB: u64 = 9_000_001;

pub(crate) const MEDIUM_JOB: u64 = 9_000_002;

pub(crate) const WIDE_JOB: u64 = 9_000_003;

pub(crate) const STEPS_JOB: u64 = 9_000_004;

pub(crate) const SHORT_JOB: u64 = 9_000_005;

/// Steps that begin in one frame.
pub(crate) const STEPS_PER_FRAME: u32 = 100;

/// Job id of the first job that measures registration.
pub(crate) const FIRST_REGISTERED: u64 = 10_000_000;

/// Series of the big and the medium job on each node.
pub(crate) const LARGE_SERIES: usize = 50;

/// Maximum number of samples in a frame of a past job: a minute of one that samples every second. A batch has
/// no room for much more than ten times as many.
const SAMPLES_PER_FRAME: u32 = 3_600;

const USERS: u64 = 40;

/// Seed of the begins and owners of the jobs.
const SEED: u64 = 16;

pub(crate) const DAY_US: i64 = 86_400 * 1_000_000;

#[derive(Debug, Clone)]
pub(crate) struct JobPlan {
    pub(crate) id: u64,
    pub(crate) owner: u64,
    /// Positions of its nodes in the fleet.
    pub(crate) nodes: Range<usize>,
    pub(crate) begin_us: i64,
    pub(crate) period: Period,
    /// Samples of each series.
    pub(crate) samples: u32,
    /// Series on each node.
    pub(crate) series: usize,
    /// Samples of each series in a frame.
    pub(crate) samples_per_frame: u32,
    /// Steps begin with successive samples.
    pub(crate) steps: u32,
}

impl JobPlan {
    pub(crate) fn time_us(&self, sample: u32) -> i64 {
        self.begin_us + i64::from(sample) * period_us(self.period)
    }

    /// Time after the last sample, since the epoch.
    pub(crate) fn end_us(&self) -> i64 {
        self.time_us(self.samples)
    }
}

fn period_us(period: Period) -> i64 {
    i64::try_from(period.as_micros()).unwrap_or(i64::MAX)
}

pub(crate) fn nodes(arguments: &Arguments) -> usize {
    let count = arguments.nodes + arguments.big_nodes + 1;
    let is_wide = arguments.add.contains(&Extra::Wide);
    usize::try_from(if is_wide { count.max(arguments.wide_nodes) } else { count }).unwrap_or(usize::MAX)
}

pub(crate) fn begin_us(arguments: &Arguments, now_us: i64) -> i64 {
    now_us - i64::from(arguments.days) * DAY_US
}

/// All jobs in the order in which they are sent: past jobs by their begin, then the medium and the big one.
pub(crate) fn jobs(arguments: &Arguments, now_us: i64) -> Vec<JobPlan> {
    let mut jobs = past_jobs(arguments, now_us);
    let first = usize::try_from(arguments.nodes).unwrap_or(usize::MAX);
    let big = usize::try_from(arguments.big_nodes).unwrap_or(usize::MAX);
    let large = |id, nodes, begin_us, samples| JobPlan {
        id,
        owner: 1,
        nodes,
        begin_us,
        period: Period::SECOND,
        samples,
        series: LARGE_SERIES,
        samples_per_frame: arguments.seconds_per_frame,
        steps: 0,
    };
    let today_us = now_us - now_us.rem_euclid(DAY_US);
    let (medium_us, big_us) = (today_us - DAY_US, today_us - 3 * DAY_US);
    jobs.push(large(MEDIUM_JOB, first + big..first + big + 1, medium_us, arguments.medium_seconds));
    jobs.push(large(BIG_JOB, first..first + big, big_us, arguments.big_hours * 3_600));
    jobs
}

/// Jobs to add: at noon of yesterday, one after the other.
pub(crate) fn extras(arguments: &Arguments, now_us: i64) -> Vec<JobPlan> {
    let noon_us = now_us - now_us.rem_euclid(DAY_US) - DAY_US / 2;
    let series = usize::from(arguments.series);
    let wide = usize::try_from(arguments.wide_nodes).unwrap_or(usize::MAX);
    let base = JobPlan {
        id: WIDE_JOB,
        owner: 1,
        nodes: 0..wide,
        begin_us: noon_us,
        period: Period::from_micros(10_000_000).unwrap_or(Period::SECOND),
        samples: 360,
        series,
        samples_per_frame: SAMPLES_PER_FRAME / u32::from(arguments.series),
        steps: 0,
    };
    arguments
        .add
        .iter()
        .map(|extra| match extra {
            Extra::Wide => base.clone(),
            Extra::Steps => JobPlan {
                id: STEPS_JOB,
                nodes: 0..1,
                begin_us: noon_us + DAY_US / 12,
                period: Period::SECOND,
                samples: arguments.steps.next_multiple_of(STEPS_PER_FRAME),
                samples_per_frame: STEPS_PER_FRAME,
                series: series.min(12),
                steps: arguments.steps,
                ..base.clone()
            },
            Extra::Short => JobPlan {
                id: SHORT_JOB,
                nodes: 0..1,
                begin_us: noon_us + DAY_US / 4,
                period: Period::TEN_MILLISECONDS,
                samples: 5,
                samples_per_frame: 5,
                ..base.clone()
            },
        })
        .collect()
}

/// Past jobs by their begin. Each node runs one after the other, at random times within equal intervals.
fn past_jobs(arguments: &Arguments, now_us: i64) -> Vec<JobPlan> {
    let mut random = Random::new(SEED);
    let nodes = u64::from(arguments.nodes);
    let period_us = period_us(arguments.period);
    let duration_us = i64::from(arguments.samples) * period_us;
    let per_node = i64::try_from(arguments.jobs.div_ceil(nodes)).unwrap_or(i64::MAX);
    // The last job ends before now.
    let interval_us = (i64::from(arguments.days) * DAY_US - duration_us) / per_node.max(1);
    let spare = u64::try_from((interval_us - duration_us) / period_us).unwrap_or(0);
    let mut jobs = Vec::new();
    for number in 0..arguments.jobs {
        let (round, node) = (number / nodes, number % nodes);
        let offset = i64::try_from(random.below(spare.max(1))).unwrap_or(0) * period_us;
        let begin_us = begin_us(arguments, now_us) + i64::try_from(round).unwrap_or(0) * interval_us + offset;
        let node = usize::try_from(node).unwrap_or(0);
        jobs.push(JobPlan {
            id: 0,
            owner: random.below(USERS),
            nodes: node..node + 1,
            begin_us: begin_us - begin_us.rem_euclid(period_us),
            period: arguments.period,
            samples: arguments.samples,
            series: usize::from(arguments.series),
            samples_per_frame: arguments
                .samples
                .div_ceil(2)
                .min(SAMPLES_PER_FRAME / u32::from(arguments.series)),
            steps: 0,
        });
    }
    jobs.sort_by_key(|job| job.begin_us);
    jobs.iter_mut().zip(FIRST_JOB..).for_each(|(job, id)| job.id = id);
    jobs
}

/// Plans `count` jobs that begin now with one sample each, with the job ids from `first_id` on.
pub(crate) fn registrations(arguments: &Arguments, first_id: u64, count: u64, now_us: i64) -> Vec<JobPlan> {
    (0..count)
        .map(|number| {
            let node = usize::try_from(number % u64::from(arguments.nodes)).unwrap_or(0);
            JobPlan {
                id: first_id + number,
                owner: number % USERS,
                nodes: node..node + 1,
                begin_us: now_us,
                period: arguments.period,
                samples: 1,
                series: usize::from(arguments.series),
                samples_per_frame: 1,
                steps: 0,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn jobs_of_one_node_do_not_overlap_and_lie_in_the_past() {
        let arguments = Arguments::parse_from(["world", "--jobs", "1000", "--nodes", "7", "--days", "30"]);
        let now_us = 1_800_000_000_123_456;
        let jobs = jobs(&arguments, now_us);
        assert_eq!(jobs.len(), 1_002);
        let mut free_us = vec![begin_us(&arguments, now_us) - 60_000_000; nodes(&arguments)];
        for (number, job) in jobs.iter().take(1_000).enumerate() {
            assert_eq!(job.id, FIRST_JOB + number as u64);
            let free_us = &mut free_us[job.nodes.start];
            assert!(*free_us <= job.begin_us && job.end_us() <= now_us, "{job:?}");
            *free_us = job.end_us();
        }
        assert!(jobs.iter().all(|job| job.end_us() <= now_us));
        assert!(jobs.iter().all(|job| job.samples_per_frame * 60 <= SAMPLES_PER_FRAME));
        assert_eq!(jobs.last().map(|job| job.nodes.clone()), Some(7..17));
    }
}
