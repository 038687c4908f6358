//! `polymeter overhead`: how much sampling slows a running job, by its own measure of progress.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;

use clap_complete::engine::ArgValueCompleter;
use polymeter_analysis::phases::spans_of;
use polymeter_analysis::receipt::{Block, BlockPlan, Measure, PAIRS_MIN, Receipt, guess, receipt};
use polymeter_client::commands::plan_of;
use polymeter_client::completion::{metrics, periods};
use polymeter_client::connection::agent::unexpected;
use polymeter_client::connection::target::{ControlTarget, TargetAnswer};
use polymeter_client::control_view::nodes;
use polymeter_client::job_choice::JobChoice;
use polymeter_proto::control::{Answer, LeaseAnswer, Request, SetRequest};
use polymeter_proto::period::Period;
use polymeter_proto::read::{MarkRow, SampleRow};
use polymeter_proto::units::counted;
use polymeter_service::clock;
use polymeter_store::StoreError;
use polymeter_store::reader::{JobRow, Read, SeriesScope};
use serde::Serialize;

use crate::client::read_source::{ReadSource, Source};
use crate::failure::Failure;
use crate::output::layout::wrapped_lines;
use crate::output::printable::printable_name;
use crate::output::progress;
use crate::output::{terminal, units};
use crate::store_failure::cannot_read;

/// A job must have slowed or adapted within a tenth of a block, and a metric must have several values in it.
const BLOCK_MIN: Period = Period::SECOND;

/// Time for the last samples to arrive in the store, and the pause between two looks.
const ARRIVAL: Duration = Duration::from_secs(15);
const ARRIVAL_PAUSE: Duration = Duration::from_millis(250);

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "polymeter overhead [OPTIONS] --metric <METRIC> <SELECTOR=PERIOD>...\n       polymeter overhead [OPTIONS] --phase <NAME> <SELECTOR=PERIOD>...",
    group = clap::ArgGroup::new("progress").required(true).args(["metric", "phase"]),
    after_help = "Blocks of time with and without the sampling alternate in random order, two by two. The slowdown is by \
        how much longer the same work takes while it is sampled. The sampling is a lease of one block each time, so it ends by \
        itself if this command is killed."
)]
pub(crate) struct OverheadArguments {
    /// The sampling whose cost is in question: 'cpu.*=1ms' perf.instructions=10ms.
    #[arg(required = true, value_name = "SELECTOR=PERIOD", add = ArgValueCompleter::new(metrics::metric_with_period))]
    periods: Vec<String>,

    /// The metric that tells the job's progress, such as user.iterations: its rate if it counts work, else
    /// the time of a piece of work.
    #[arg(long, value_name = "METRIC")]
    metric: Option<String>,

    /// The phase whose duration tells the job's progress.
    #[arg(long, value_name = "NAME")]
    phase: Option<String>,

    /// What the metric is. Default: work if it never decreases.
    #[arg(long, value_name = "MEASURE", value_enum, conflicts_with = "phase")]
    measure: Option<MeasureName>,

    /// The time that the measurement takes.
    #[arg(long = "for", value_name = "TIME", default_value = "5min", add = ArgValueCompleter::new(periods::duration))]
    duration: Period,

    /// The mean length of a block; at least ten of them must fit.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    block: Period,

    /// The number that chooses the order of the blocks. Default: the time.
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// The job's id. Default: the job of the `polymeter run` around the command, else SLURM_JOB_ID or
    /// OAR_JOB_ID, else the job in whose cgroup the command runs.
    #[arg(long, value_name = "ID")]
    job: Option<String>,

    #[command(flatten)]
    source: ReadSource,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum MeasureName {
    /// It counts work, such as iterations.
    Work,
    /// It is the time of a piece of work.
    Time,
}

#[derive(Debug, Serialize)]
struct Measured<'a> {
    job: &'a str,
    plan: &'a BTreeMap<String, String>,
    progress: &'a str,
    seed: u64,
    #[serde(flatten)]
    receipt: Receipt,
    /// Predicted cost of all sampling of the job during a sampled block; none through a collector.
    predicted_cpu_percent: Option<f64>,
    /// Why it ended before its time; none if it did not.
    ended_by: Option<String>,
    blocks: &'a [Block],
}

impl OverheadArguments {
    fn progress(&self) -> &str {
        self.metric.as_deref().or(self.phase.as_deref()).unwrap_or_default()
    }

    fn check(&self) -> Result<(), Failure> {
        let pairs = self.duration.as_micros() / (2 * self.block.as_micros());
        if self.block < BLOCK_MIN {
            return Err(Failure::Usage(format!("cannot use blocks of {}: the shortest is 1s", self.block)));
        }
        if pairs < PAIRS_MIN as u64 {
            let needed = units::elapsed(units::to_f64(2 * PAIRS_MIN as u64 * self.block.as_micros()) / 1e6);
            return Err(Failure::Usage(format!(
                "cannot measure for {}: {PAIRS_MIN} pairs of blocks of {} take {needed}; use a longer --for or a shorter \
                 --block",
                self.duration, self.block
            )));
        }
        Ok(())
    }
}

pub(crate) fn execute(arguments: &OverheadArguments) -> Result<(), Failure> {
    arguments.check()?;
    let plan = plan_of(&arguments.periods)?;
    let (collector, munge_socket) = arguments.source.collector_options();
    let target = ControlTarget::through(collector.cloned(), munge_socket.map(ToOwned::to_owned));
    let job = JobChoice::of(arguments.job.clone()).id(&target.socket())?.unwrap_or_default();
    // A job that cannot be read afterwards is not disturbed first.
    let row = find(&mut arguments.source.open_for(Some(&job))?, &job)?;
    if row.ended_ns.is_some() {
        return Err(Failure::Failed(format!(
            "cannot measure job {}: it has ended; `polymeter jobs --running` lists those that run",
            printable_name(&job)
        )));
    }
    let seed = arguments.seed.unwrap_or_else(clock::realtime_ns);
    let mut sampler =
        BlockSampler { target: &target, job: &job, plan: &plan, predicted_cpu_percent: None, ended_by: None };
    let blocks = sampler.run(BlockPlan::new(seed, arguments.block.as_micros()), arguments.duration)?;
    let (has_ended, samples) = arrived_samples(arguments, &job, &blocks, sampler.ended_by.is_some())?;
    let measure = match (arguments.phase.is_some(), arguments.measure) {
        (true, _) | (_, Some(MeasureName::Time)) => Measure::Time,
        (_, Some(MeasureName::Work)) => Measure::Work,
        (_, None) => guess(&samples),
    };
    let progress = arguments.progress();
    let receipt = receipt(measure, &blocks, &samples).map_err(|error| {
        Failure::Failed(format!(
            "cannot tell the slowdown by {}: {error}; let the job report its progress at least twice in a block, or \
             use longer blocks (--block)",
            printable_name(progress)
        ))
    })?;
    let measured = Measured {
        job: &job,
        plan: &plan,
        progress,
        seed,
        receipt,
        predicted_cpu_percent: sampler.predicted_cpu_percent,
        ended_by: sampler.ended_by.map(|reason| if has_ended { "the job ended".to_owned() } else { reason }),
        blocks: &blocks,
    };
    if arguments.json {
        return terminal::print_json(&measured);
    }
    let limit = terminal::width_limit(&std::io::stdout());
    terminal::print(&wrapped_lines(&text(&measured), limit))
}

fn text(of: &Measured<'_>) -> String {
    let Receipt { measure, pairs, left_out, slowdown_percent, low_percent, high_percent } = of.receipt;
    let plan = of.plan.iter().map(|(selector, period)| format!("{selector}={period}"));
    let plan = plan.collect::<Vec<_>>().join(" ");
    let what = match measure {
        Measure::Work => "rate",
        Measure::Time => "time",
    };
    let mut text = format!(
        "slowdown of job {} by {}: {slowdown_percent:+.2} %, between {low_percent:+.2} and {high_percent:+.2} % \
         (95 % interval)\n",
        printable_name(of.job),
        printable_name(&plan),
    );
    if low_percent <= 0.0 && high_percent >= 0.0 {
        text.push_str("it cannot be told from none\n");
    }
    text.push_str(&format!(
        "measured by the {what} of {} in {} of blocks with and without the sampling\n",
        printable_name(of.progress),
        counted(pairs, "pair")
    ));
    if left_out > 0 {
        text.push_str(&format!("{} left out: it has too few values there\n", counted(left_out, "pair")));
    }
    if let Some(reason) = &of.ended_by {
        text.push_str(&format!("ended before its time: {reason}\n"));
    }
    if let Some(predicted) = of.predicted_cpu_percent {
        text.push_str(&format!("predicted cost of all sampling meanwhile: {predicted:.2} % of a CPU\n"));
    }
    text
}

/// Samples a job in some blocks of time and not in others.
struct BlockSampler<'a> {
    target: &'a ControlTarget,
    job: &'a str,
    plan: &'a BTreeMap<String, String>,
    predicted_cpu_percent: Option<f64>,
    ended_by: Option<String>,
}

impl BlockSampler<'_> {
    fn run(&mut self, plan: BlockPlan, duration: Period) -> Result<Vec<Block>, Failure> {
        let shows_progress = std::io::stderr().is_terminal();
        let blocks = self.run_blocks(plan, duration, shows_progress);
        if shows_progress {
            progress::write("");
        }
        blocks
    }

    fn run_blocks(
        &mut self,
        plan: BlockPlan,
        duration: Period,
        shows_progress: bool,
    ) -> Result<Vec<Block>, Failure> {
        let begin_us = clock::realtime_us();
        let end_us = begin_us.saturating_add_unsigned(duration.as_micros());
        let mut blocks: Vec<Block> = Vec::new();
        for (is_sampled, length_us) in plan {
            let now_us = clock::realtime_us();
            if blocks.len().is_multiple_of(2) && now_us.saturating_add_unsigned(2 * length_us) > end_us {
                break;
            }
            let begin_us = match is_sampled.then(|| self.sample(length_us)).transpose() {
                Ok(begin_us) => begin_us.unwrap_or(now_us),
                // The job may have ended: the blocks until then tell its slowdown, too.
                Err(failure) if blocks.len() >= 2 * PAIRS_MIN => {
                    self.ended_by = Some(failure.to_string());
                    break;
                }
                Err(failure) => return Err(failure),
            };
            let block = Block { is_sampled, begin_us, end_us: begin_us.saturating_add_unsigned(length_us) };
            if shows_progress {
                let left_s = units::to_f64(end_us.saturating_sub(now_us).unsigned_abs()) / 1e6;
                let state = if is_sampled { "sampled" } else { "not sampled" };
                progress::write(&format!(
                    "block {}: {state}  {} left",
                    blocks.len() + 1,
                    units::elapsed(left_s.round())
                ));
            }
            blocks.push(block);
            let left_us = block.end_us.saturating_sub(clock::realtime_us());
            clock::sleep(Duration::from_micros(u64::try_from(left_us).unwrap_or(0)));
        }
        Ok(blocks)
    }

    /// Gets a lease for one block. Returns when it begins, in microseconds since the epoch.
    fn sample(&mut self, length_us: u64) -> Result<i64, Failure> {
        let request = SetRequest {
            job: Some(self.job.to_owned()),
            level: None,
            ring: false,
            plan: self.plan.clone(),
            // A period's text is whole milliseconds here; the block ends a little later.
            duration: Some(format!("{}ms", length_us / 1_000)),
        };
        match self.target.ask(&Request::Set(request), true)? {
            TargetAnswer::Nodes(answer) if nodes::have_succeeded(&answer) => {
                Ok(answer.at_us.unwrap_or_else(clock::realtime_us))
            }
            TargetAnswer::Nodes(answer) => {
                nodes::print(&answer, false)?;
                Err(Failure::Failed("cannot sample the job on all of its nodes".to_owned()))
            }
            TargetAnswer::Agent(Answer::Granted(LeaseAnswer { cost, .. })) => {
                self.predicted_cpu_percent = Some(cost.cpu_percent);
                Ok(clock::realtime_us())
            }
            TargetAnswer::Agent(answer) => Err(unexpected(answer)),
        }
    }
}

fn find(source: &mut Source, job: &str) -> Result<JobRow, Failure> {
    let found = source.reader.last_job(Some(job)).map_err(cannot_read)?;
    found.ok_or_else(|| {
        let place = source.place();
        Failure::Failed(format!(
            "cannot measure job {}: {place} does not contain it, or it is not yours; `polymeter jobs --running` lists \
             yours",
            printable_name(job)
        ))
    })
}

/// Reads the progress within all blocks, when it has arrived or does not arrive in time, and whether the job
/// has ended.
fn arrived_samples(
    arguments: &OverheadArguments,
    job: &str,
    blocks: &[Block],
    may_have_ended: bool,
) -> Result<(bool, Vec<SampleRow>), Failure> {
    let end_ns = blocks.last().map_or(0, |block| block.end_us.saturating_mul(1000));
    let span_us = blocks.last().zip(blocks.first()).map_or(0, |(last, first)| last.end_us - first.begin_us);
    let begun_ns = clock::monotonic_ns();
    loop {
        let mut source = arguments.source.open_for(Some(job))?;
        let row = find(&mut source, job)?;
        let samples = match &arguments.phase {
            Some(phase) => durations(source.reader.as_mut(), &row, phase),
            None => values(source.reader.as_mut(), &row, arguments.progress(), end_ns, span_us),
        };
        let samples = samples.map_err(cannot_read)?;
        let has_ended = row.ended_ns.is_some();
        let has_arrived = has_ended || (!may_have_ended && row.sampled_ns.end >= end_ns);
        let waited = Duration::from_nanos(clock::monotonic_ns().saturating_sub(begun_ns));
        if has_arrived || waited > ARRIVAL {
            return Ok((has_ended, samples));
        }
        clock::sleep(ARRIVAL_PAUSE);
    }
}

/// Samples of all series of a metric of the job.
fn values(
    reader: &mut dyn Read,
    job: &JobRow,
    metric: &str,
    end_ns: i64,
    span_us: i64,
) -> Result<Vec<SampleRow>, StoreError> {
    let series = reader.job_series(job.job_key, &[metric])?;
    let series: Vec<i64> = series.iter().map(|series| series.series_id).collect();
    let span_ns = end_ns.saturating_sub(span_us.saturating_mul(1000))..end_ns;
    let mut samples = Vec::new();
    reader.samples(SeriesScope::Job(job.job_key), &series, &span_ns, |row| {
        samples.push(row);
        Ok::<(), StoreError>(())
    })?;
    Ok(samples)
}

/// Durations of the phases of a name in seconds, at their ends, with a series for each node.
fn durations(reader: &mut dyn Read, job: &JobRow, phase: &str) -> Result<Vec<SampleRow>, StoreError> {
    let marks: Vec<MarkRow> = reader.marks(job.job_key)?;
    let mut samples = Vec::new();
    let mut series = BTreeMap::new();
    for (node, span_ns) in spans_of(marks, phase, job) {
        let next = i64::try_from(series.len()).unwrap_or(i64::MAX);
        let series_id = *series.entry(node).or_insert(next);
        let value = units::to_f64(span_ns.end.abs_diff(span_ns.start)) / 1e9;
        samples.push(SampleRow { series_id, time_ns: span_ns.end, value, window: None });
    }
    samples.sort_by_key(|sample| (sample.series_id, sample.time_ns));
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot;

    #[test]
    fn the_slowdown_is_stated_with_its_interval() {
        let plan = BTreeMap::from([("cpu.*".to_owned(), "1ms".to_owned())]);
        let receipt = Receipt {
            measure: Measure::Work,
            pairs: 15,
            left_out: 1,
            slowdown_percent: 0.42,
            low_percent: -0.05,
            high_percent: 0.894,
        };
        let of = |receipt| Measured {
            job: "4242",
            plan: &plan,
            progress: "user.iterations",
            seed: 7,
            receipt,
            predicted_cpu_percent: Some(2.654),
            ended_by: None,
            blocks: &[],
        };
        let slower = Receipt { measure: Measure::Time, left_out: 0, low_percent: 0.2, ..receipt.clone() };
        snapshot::check("overhead", &format!("{}\n{}", text(&of(receipt)), text(&of(slower))));
    }
}
