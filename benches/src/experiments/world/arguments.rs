//! The command line.

use polymeter_benches::store::Kind;
use polymeter_proto::period::Period;

/// Fills a store with months of jobs, and measures reads and sizes.
///
/// By default 100,000 jobs on 100 nodes in the last 91 days, each with 60 series of 30 samples (180 million
/// samples), an owner, facts, tallies, a change of plan for each metric, some with marks, leases and missed
/// samples; a job of 50 series that are sampled every second for 10,000 s; and one of 10 nodes with 50
/// series each, sampled every second for 24 hours of a past day (43.2 million samples). Takes 10 GB. Fails
/// if the store's ledger is not consistent, or differs from what was sent.
///
/// --measure runs commands as processes of their own, whose memory is the maximum of their resident memory,
/// and queries on one connection, which receives all rows; psql reports their time. Each query runs once
/// before, to count its rows; the files are then in the page cache as far as they fit. A measurement of
/// more than 10 s is not repeated. Registration adds jobs with one sample of each series, from the first
/// frame to the last acknowledgement, with up to 64 frames of each agent in flight. Metadata are all tables
/// except those of samples and rollups, with their indexes. `scale:` are reports of all large jobs that the
/// store has, directly, through a collector as root, and as the owner; `export` is the job of 24 hours in
/// each format.
#[derive(Debug, clap::Parser)]
pub(crate) struct Arguments {
    /// Number of past jobs, each on one node.
    #[arg(long, default_value_t = 100_000)]
    pub(crate) jobs: u64,
    /// Number of series of each job.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..=60))]
    pub(crate) series: u16,
    /// Number of samples of each series.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub(crate) samples: u32,
    /// Period of these samples.
    #[arg(long, default_value = "1min")]
    pub(crate) period: Period,
    /// Number of days over which the jobs are spread, up to now.
    #[arg(long, default_value_t = 91, value_parser = clap::value_parser!(u32).range(4..=360))]
    pub(crate) days: u32,
    /// Number of nodes on which the jobs run.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) nodes: u32,
    /// Number of nodes of the big job, which has 50 series on each, sampled every second.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) big_nodes: u32,
    /// Duration of the big job, in hours.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=48))]
    pub(crate) big_hours: u32,
    /// Duration of a job on one node with 50 series that are sampled every second, in seconds.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(2..=80_000))]
    pub(crate) medium_seconds: u32,
    /// Number of seconds of the big and the medium job in one frame.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) seconds_per_frame: u32,
    /// Kind of the scratch store; by default the best that is installed.
    #[arg(long, value_enum, conflicts_with = "into")]
    pub(crate) store: Option<Kind>,
    /// Existing store to fill: sqlite:PATH, or a database of a running server. It is kept.
    #[arg(long, value_name = "URL")]
    pub(crate) into: Option<String>,
    /// Jobs to add to a store, also to one that has been filled before; may be repeated.
    #[arg(long, value_enum, value_name = "JOB")]
    pub(crate) add: Vec<Extra>,
    /// Number of nodes of the wide job, which has as many series on each as a past job, sampled every 10 s
    /// for an hour.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) wide_nodes: u32,
    /// Number of steps of the job with steps, one after the other, 100 in 100 s.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) steps: u32,
    /// Measure reads, the registration of jobs, and sizes. A store that has been filled before is not filled
    /// again.
    #[arg(long)]
    pub(crate) measure: bool,
    /// Measure only what has this text in its name, such as `report` or `registration`.
    #[arg(long, value_name = "TEXT", requires = "measure")]
    pub(crate) only: Option<String>,
    /// Number of runs of each measurement.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) runs: u16,
    /// Number of jobs that one run of the measurement of registration adds to the store; 0 leaves it out.
    #[arg(long, default_value_t = 5_000)]
    pub(crate) registrations: u64,
    /// Fill a small store, as a functional check.
    #[arg(long)]
    pub(crate) quick: bool,
}

/// A job that is not part of the usual history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Extra {
    /// A job on many nodes.
    Wide,
    /// A job with many steps on one node.
    Steps,
    /// A job of 50 ms.
    Short,
}

impl Arguments {
    /// Replaces them by those of a functional check, if that is wanted.
    pub(crate) fn or_quick(self) -> Self {
        if !self.quick {
            return self;
        }
        let (jobs, nodes, runs, registrations) = (200, 20, 2, 20);
        let (big_nodes, big_hours, medium_seconds, days) = (2, 1, 300, 4);
        let (wide_nodes, steps) = (20, 250);
        Self {
            jobs,
            nodes,
            runs,
            registrations,
            big_nodes,
            big_hours,
            medium_seconds,
            days,
            wide_nodes,
            steps,
            ..self
        }
    }
}
