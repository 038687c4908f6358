//! `polymeter flame`: shows the functions in which a stored job spent its time.

mod time_in_job;
mod tree_text;

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use clap_complete::engine::ArgValueCompleter;
use polymeter_analysis::phases::spans_of;
use polymeter_analysis::stacks::profile::{Choice, Profile, Ranks, Spans, ranks};
use polymeter_analysis::stacks::{
    Difference, Missing, Process, Tree, collapsed, firefox, pprof, remarks_before, summary,
};
use polymeter_proto::units;
use polymeter_service::clock;
use polymeter_store::reader::{JobRow, Read};

use self::time_in_job::TimeInJob;
use crate::client::job_completion;
use crate::client::read_source::{ReadSource, Source};
use crate::failure::Failure;
use crate::output::layout::wrapped_lines;
use crate::output::new_file::{NewFile, cannot_write};
use crate::output::printable::printable_name;
use crate::output::terminal;
use crate::report::choice::{ChosenJob, choose_only};
use crate::report::html;
use crate::report::summary::flame_remarks;
use crate::store_failure::cannot_read;

/// A format of call stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A tree with the shares of functions.
    Text,
    /// A page with a flame graph and a table, which needs no network.
    Html,
    /// A line for each stack with its time in microseconds, for flamegraph.pl and speedscope.
    Collapsed,
    /// The compressed format of pprof.
    Pprof,
    /// The format of <https://profiler.firefox.com>.
    Firefox,
}

const EXTENSIONS: [(&str, Format); 6] = [
    (".html", Format::Html),
    (".folded", Format::Collapsed),
    (".pb.gz", Format::Pprof),
    (".pprof", Format::Pprof),
    (".json", Format::Firefox),
    (".txt", Format::Text),
];

/// Used where stdout is no terminal.
const COLUMNS: usize = 80;

/// Those with the most time.
const THREADS: usize = 200;

#[derive(Debug, clap::Args)]
pub(crate) struct FlameArguments {
    /// The job's id, also as schedulers print it: 4009_1, 4009+1; of several jobs with the same id the last.
    /// Default: the job of the `polymeter run` around the command, else SLURM_JOB_ID or OAR_JOB_ID, else the
    /// store's only job.
    #[arg(value_name = "JOB", add = ArgValueCompleter::new(job_completion::stored))]
    job: Option<String>,

    #[command(flatten)]
    source: ReadSource,

    /// The metric, such as stacks.cpu or stacks.wait. Default: stacks.cpu, or what the job has.
    #[arg(long, value_name = "METRIC")]
    metric: Option<String>,

    /// Samples within phases of this name only.
    #[arg(long, value_name = "NAME")]
    phase: Option<String>,

    /// Samples of this node only.
    #[arg(long, value_name = "NODE")]
    node: Option<String>,

    /// Samples of this process only: its id on the node.
    #[arg(long, value_name = "PID")]
    process: Option<u32>,

    /// Samples of the processes of this rank only: a number of MPI or of the launcher.
    #[arg(long, value_name = "RANK", conflicts_with = "process")]
    rank: Option<u32>,

    /// Samples from this time on: +90s after the start of the job, YYYY-MM-DDTHH:MM in UTC, or an age: 12h.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: Option<TimeInJob>,

    /// Samples before this time.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    to: Option<TimeInJob>,

    /// Show the differences from another job, whose samples are chosen alike. For text and html.
    #[arg(long, value_name = "JOB", add = ArgValueCompleter::new(job_completion::stored))]
    against: Option<String>,

    /// The format. Default: that of the output's extension, else text.
    #[arg(long, value_name = "FORMAT", value_enum)]
    format: Option<Format>,

    /// The file; - for the standard output. Default: the standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replace an existing file.
    #[arg(long)]
    force: bool,

    /// Print JSON: the functions with the most time, the shares of phases and nodes, lost samples.
    #[arg(long, conflicts_with_all = ["format", "output", "against"])]
    json: bool,
}

impl FlameArguments {
    fn format(&self) -> Result<Format, Failure> {
        let name = self.output.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy());
        let of_name =
            name.and_then(|name| EXTENSIONS.into_iter().find(|(extension, _)| name.ends_with(extension)));
        let format = self.format.or(of_name.map(|(_, format)| format)).unwrap_or(Format::Text);
        if self.against.is_some() && !matches!(format, Format::Text | Format::Html) {
            let message = "cannot compare the jobs: only text and html show differences; use --format html";
            return Err(Failure::Usage(message.to_owned()));
        }
        let is_terminal = self.file().is_none() && std::io::stdout().is_terminal();
        if format == Format::Pprof && is_terminal {
            let message =
                "cannot write the profile: pprof is no text for a terminal; name a file with --output";
            return Err(Failure::Usage(message.to_owned()));
        }
        Ok(format)
    }

    /// None for the standard output.
    fn file(&self) -> Option<&Path> {
        self.output.as_deref().filter(|path| *path != Path::new("-"))
    }
}

pub(crate) fn execute(arguments: &FlameArguments) -> Result<(), Failure> {
    let format = arguments.format()?;
    let wanted = arguments.job.as_deref();
    let mut source = arguments.source.open_for(wanted)?;
    let (job, profile, missing) = read(arguments, &mut source, wanted)?;
    let report = summary(&profile, missing);
    if arguments.json {
        return terminal::print_json(&report);
    }
    let before = match &arguments.against {
        Some(other) => Some(read(arguments, &mut source, Some(other))?),
        None => None,
    };
    let tree = profile.tree();
    let mut remarks = flame_remarks(&report);
    let mut difference = None;
    if let Some((other, before, missing)) = before {
        remarks.extend(remarks_before(&before, missing));
        difference = Some((other, Difference::of(&before.tree(), &tree)));
    }
    let encoded = match format {
        Format::Text => text(arguments, &job, &remarks, &tree, difference.as_ref()).into_bytes(),
        Format::Html => {
            let title = title(&job, difference.as_ref().map(|(other, _)| other));
            let difference = difference.as_ref().map(|(_, difference)| difference);
            html::flame_page(&title, &remarks, &tree, difference).into_bytes()
        }
        Format::Collapsed => collapsed(&tree).into_bytes(),
        Format::Pprof => pprof(&tree, &span_us(&profile), profile.intervals.period_us),
        Format::Firefox => firefox_profile(&job, &profile).into_bytes(),
    };
    write(arguments, &encoded)
}

fn read(
    arguments: &FlameArguments,
    source: &mut Source,
    wanted: Option<&str>,
) -> Result<(JobRow, Profile, Missing), Failure> {
    let ChosenJob { job, step, .. } = choose_only(source, wanted)?;
    let job_id = printable_name(&job.job_id).into_owned();
    if step.is_some() {
        return Err(Failure::Usage(format!("cannot show a step: name the job, {job_id}")));
    }
    let reader = source.reader.as_mut();
    let spans = spans(arguments, reader, &job)?;
    let ranks = ranks(reader, job.job_key).map_err(cannot_read)?;
    let processes = arguments.rank.map(|rank| processes_of(rank, &ranks, &job)).transpose()?;
    let choice = Choice { metric: arguments.metric.clone(), process: arguments.process, processes, spans };
    let mut profile = Profile::read(reader, job.job_key, &choice).map_err(cannot_read)?;
    profile.ranks = ranks;
    if !profile.is_empty() {
        let missing =
            Missing::read(reader, job.job_key, &profile.metric, &choice.spans).map_err(cannot_read)?;
        return Ok((job, profile, missing));
    }
    let others: Vec<&str> = profile.metrics.iter().map(String::as_str).collect();
    let remedy = if !others.is_empty() && !others.contains(&profile.metric.as_str()) {
        format!("it has samples of {}", others.join(", "))
    } else {
        "sample it with `polymeter set stacks.cpu=10ms`, or choose another part".to_owned()
    };
    let metric = printable_name(&profile.metric).into_owned();
    Err(Failure::Failed(format!(
        "cannot show functions: job {job_id} has no call stacks of {metric} in this part, or they are its owner's alone; {remedy}"
    )))
}

/// Each with its node.
fn processes_of(rank: u32, ranks: &Ranks, job: &JobRow) -> Result<BTreeSet<(String, u32)>, Failure> {
    let of_rank = ranks.iter().filter(|(_, known)| **known == rank);
    let processes: BTreeSet<(String, u32)> = of_rank.map(|(process, _)| process.clone()).collect();
    if !processes.is_empty() {
        return Ok(processes);
    }
    let job_id = printable_name(&job.job_id);
    let known: BTreeSet<u32> = ranks.values().copied().collect();
    let remedy = match known.first().zip(known.last()) {
        Some((least, most)) => format!("ranks from {least} to {most} have some"),
        None => "its launcher set no rank in the environment of its processes, or stacks were not sampled; \
                 choose a process with --process"
            .to_owned(),
    };
    Err(Failure::Failed(format!(
        "cannot choose samples: job {job_id} has no call stacks of rank {rank}; {remedy}"
    )))
}

/// Spans of the chosen samples, each with its node.
fn spans(arguments: &FlameArguments, reader: &mut dyn Read, job: &JobRow) -> Result<Spans, Failure> {
    let now_us = clock::realtime_us();
    let bound = |time: Option<TimeInJob>, otherwise| time.map_or(otherwise, |time| time.time_ns(job, now_us));
    let span_ns = bound(arguments.from, job.sampled_ns.start)..bound(arguments.to, job.sampled_ns.end);
    if span_ns.is_empty() {
        return Err(Failure::Usage("cannot choose samples: --to is not after --from".to_owned()));
    }
    if let Some(node) = arguments.node.as_ref().filter(|node| !job.nodes.contains(node)) {
        let nodes = polymeter_proto::text::abridged_list(&job.nodes, 10);
        return Err(Failure::Failed(format!(
            "cannot choose samples: job {} did not run on {}; it ran on {}",
            printable_name(&job.job_id),
            printable_name(node),
            printable_name(&nodes)
        )));
    }
    let Some(phase) = &arguments.phase else { return Ok(vec![(arguments.node.clone(), span_ns)]) };
    let marks = reader.marks(job.job_key).map_err(cannot_read)?;
    let phases = spans_of(marks, phase, job);
    let chosen = phases
        .into_iter()
        .filter(|(node, _)| arguments.node.as_ref().is_none_or(|chosen| chosen == node))
        .map(|(node, of_phase)| {
            (Some(node), of_phase.start.max(span_ns.start)..of_phase.end.min(span_ns.end))
        });
    let spans: Vec<_> = chosen.filter(|(_, span_ns)| !span_ns.is_empty()).collect();
    if spans.is_empty() {
        return Err(Failure::Failed(format!(
            "cannot choose samples: job {} has no phase {} there; `polymeter report --show phases` lists them",
            printable_name(&job.job_id),
            printable_name(phase)
        )));
    }
    Ok(spans)
}

fn span_us(profile: &Profile) -> Range<i64> {
    profile.intervals.first_ns.div_euclid(1000)..profile.intervals.last_ns.div_euclid(1000)
}

fn firefox_profile(job: &JobRow, profile: &Profile) -> String {
    let trees = profile.trees();
    let mut processes = Vec::new();
    for ((node, process), tree) in trees.iter().take(THREADS) {
        processes.push(Process { node, process: *process, tree });
    }
    firefox(&title(job, None), span_us(profile).start, profile.intervals.period_us, &processes).to_string()
}

fn title(job: &JobRow, before: Option<&JobRow>) -> String {
    let against = before.map_or_else(String::new, |other| format!(", against job {}", other.job_id));
    format!("Where the time went: job {}{against}", job.job_id)
}

fn text(
    arguments: &FlameArguments,
    job: &JobRow,
    remarks: &[String],
    tree: &Tree,
    difference: Option<&(JobRow, Difference)>,
) -> String {
    let limit = terminal::width_limit(&std::io::stdout()).filter(|_| arguments.file().is_none());
    let mut head = format!("{}\n", title(job, difference.map(|(other, _)| other)));
    for remark in remarks {
        head.push_str(&format!("{remark}\n"));
    }
    let mut text = wrapped_lines(&head, limit);
    text.push('\n');
    match difference {
        None => text.push_str(&tree_text::tree(tree, limit.unwrap_or(COLUMNS))),
        Some((_, difference)) => text.push_str(&tree_text::changes(difference, limit)),
    }
    text
}

fn write(arguments: &FlameArguments, bytes: &[u8]) -> Result<(), Failure> {
    let Some(path) = arguments.file() else { return terminal::print_raw(bytes) };
    let remedy = "name another, or replace it with --force";
    let (incomplete, mut file) = NewFile::create(path.to_owned(), arguments.force, remedy)?;
    file.write_all(bytes).map_err(|error| cannot_write(path, &error))?;
    incomplete.keep()?;
    let size = units::bytes(bytes.len() as u64);
    terminal::print(&format!("{} ({size})\n", path.display()))
}
