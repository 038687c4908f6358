//! `polymeter advise`: proposes the request of a job script from what the user's earlier jobs like it needed.

mod oar;
mod script;
mod slurm;
mod values;
mod words;

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap_complete::engine::ArgValueCompleter;
use polymeter_analysis::model::{Resource, Scheduler};
use polymeter_analysis::proposals::{JOBS_MIN, Proposal, Request, has_finished, like, propose};
use polymeter_proto::units::{bytes, counted, elapsed, number, whole};
use polymeter_store::reader::{JobFilter, JobRow};
use serde::Serialize;

use self::script::Script;
use self::values::Unread;
use crate::client::job_completion;
use crate::client::read_source::{ReadSource, Source};
use crate::failure::Failure;
use crate::output::printable::printable_name;
use crate::output::table::{figure, head, table_within};
use crate::output::terminal;
use crate::report::choice::choose;
use crate::store_failure::cannot_read;

/// Jobs of the user, those that started last.
const SEARCHED: u32 = 5_000;

/// Slurm's usual limit on scripts is 4 MiB.
const SCRIPT_BYTES: u64 = 4 * 1024 * 1024;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "A proposal is never below what a finished job needed, and never above a request that was enough. It is the most that one of the last 200 jobs like it needed and a tenth, or the upper end of the 95 % prediction interval of a lognormal distribution if that is more, rounded up. A time limit that a job reached, and memory that it ran out of, count as one and a half times as much. Cores and GPUs are those that were in use at a time."
)]
pub(crate) struct AdviseArguments {
    /// The job script with lines of #SBATCH or #OAR; - for standard input.
    #[arg(value_name = "SCRIPT", required_unless_present_any = ["name", "like"])]
    script: Option<PathBuf>,

    /// Jobs like this have this name, in place of the script's.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Jobs like this are like this one.
    #[arg(long, value_name = "JOB", conflicts_with = "name", add = ArgValueCompleter::new(job_completion::stored))]
    like: Option<String>,

    #[command(flatten)]
    source: ReadSource,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Output<'a> {
    scheduler: Scheduler,
    request: &'a Request,
    like_by: &'a str,
    /// Jobs, and those of them that finished.
    jobs: usize,
    finished: usize,
    proposals: &'a [Proposal],
    lines: &'a [String],
    notes: &'a [String],
}

pub(crate) fn execute(arguments: &AdviseArguments) -> Result<(), Failure> {
    let mut unread = Unread::default();
    let script = arguments.script.as_deref().map(|path| read_script(path, &mut unread)).transpose()?;
    let mut source = arguments.source.open()?;
    let model = match &arguments.like {
        Some(job) => Some(choose(&mut source, Some(job.as_str()))?.job),
        None => None,
    };
    let wanted = Request { name: arguments.name.clone(), ..Request::default() };
    let wanted =
        model.as_ref().map_or(wanted, |job| Request { name: job.name.clone(), ..Request::default() });
    let wanted = wanted.or(script.as_ref().map(|script| script.request().clone()).unwrap_or_default());
    if wanted.name.is_none() {
        return Err(Failure::Usage(
            "cannot find jobs like this: the script names none; use --name or --like".to_owned(),
        ));
    }
    let jobs = own_jobs(&mut source, model.as_ref())?;
    // A request without a script is that of the last job.
    let last = jobs.iter().find(|job| job.name == wanted.name);
    let of_last = last.map(Request::of).unwrap_or_default();
    let wanted = if script.is_some() { wanted } else { wanted.or(of_last) };
    let script = script.unwrap_or_else(|| Script::of_job(&wanted, last.and_then(|job| job.state.as_deref())));
    let like = like(&jobs, &wanted);
    let finished = like.jobs.iter().filter(|job| has_finished(job)).count();
    let proposals = propose(&like.jobs, &wanted);
    let proposals: Vec<Proposal> = proposals.into_iter().filter(is_possible).collect();
    let lines = script.lines(&proposals);
    let notes = notes(&unread, like.jobs.len(), finished, jobs.len(), &wanted);
    let output = Output {
        scheduler: script.scheduler(),
        request: &wanted,
        like_by: like.by,
        jobs: like.jobs.len(),
        finished,
        proposals: &proposals,
        lines: &lines,
        notes: &notes,
    };
    if arguments.json {
        return terminal::print_json(&output);
    }
    terminal::print(&text(&output, terminal::width_limit(&std::io::stdout())))
}

/// True for a proposal that a program can follow: one that uses more cores or GPUs than it will have adapts
/// itself to their number.
fn is_possible(of: &Proposal) -> bool {
    let is_counted = matches!(of.resource, Resource::Cpu | Resource::Gpu);
    !is_counted || of.requested.is_some_and(|requested| of.proposed <= requested)
}

fn read_script(path: &Path, unread: &mut Unread) -> Result<Script, Failure> {
    let shown = path.display();
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(format!("cannot read {shown}: {error}"));
    let mut content = Vec::new();
    let is_stdin = path == Path::new("-");
    let read = if is_stdin {
        std::io::stdin().take(SCRIPT_BYTES + 1).read_to_end(&mut content)
    } else {
        fs::File::open(path).and_then(|file| file.take(SCRIPT_BYTES + 1).read_to_end(&mut content))
    };
    read.map_err(|error| failed(&error))?;
    if content.len() as u64 > SCRIPT_BYTES {
        return Err(failed(&"it is larger than 4 MiB, and no job script"));
    }
    let text = String::from_utf8_lossy(&content);
    // Slurm names a job after its script.
    let file_name = path.file_name().filter(|_| !is_stdin).map(|name| name.to_string_lossy().into_owned());
    Script::read(&text, file_name.as_deref(), unread).ok_or_else(|| {
        Failure::Failed(format!(
            "cannot read the request of {shown}: it has no line of #SBATCH or #OAR; name earlier jobs with --name or --like"
        ))
    })
}

/// Ended jobs of the user, or of the owner of `model`, the one that started last first.
fn own_jobs(source: &mut Source, model: Option<&JobRow>) -> Result<Vec<JobRow>, Failure> {
    let own = i64::from(rustix::process::geteuid().as_raw());
    let filter = JobFilter {
        owner_uid: Some(model.and_then(|job| job.owner_uid).unwrap_or(own)),
        is_ended: Some(true),
        limit: SEARCHED,
        ..JobFilter::default()
    };
    source.reader.jobs(&filter).map_err(cannot_read)
}

fn notes(unread: &Unread, like: usize, finished: usize, searched: usize, wanted: &Request) -> Vec<String> {
    let mut notes = unread.0.clone();
    if finished < JOBS_MIN {
        let name = printable_name(wanted.name.as_deref().unwrap_or_default());
        notes.push(format!(
            "no proposals: of {} of yours, {like} {} like {name}, of which {finished} finished and were summarised; {JOBS_MIN} are needed",
            counted(searched, "ended job"),
            if like == 1 { "is" } else { "are" }
        ));
    }
    notes
}

fn amount(resource: Resource, value: f64) -> String {
    match resource {
        Resource::Time => elapsed(value),
        Resource::Memory => bytes(whole(value)),
        Resource::Cpu | Resource::Gpu => number(value),
    }
}

fn text(of: &Output<'_>, limit: Option<usize>) -> String {
    let mut text = format!(
        "{} with the same {}, {} finished\n",
        counted(of.jobs, "earlier job"),
        of.like_by,
        of.finished
    );
    let mut rows = vec![head(["RESOURCE", "REQUESTED", "NEEDED: MEDIAN (95 %)", "MOST", "PROPOSED"])];
    for Proposal { resource, requested, median, median_interval, most, proposed, .. } in of.proposals {
        let amount = |value: f64| amount(*resource, value);
        let interval = median_interval
            .map_or_else(String::new, |(low, high)| format!(" ({} to {})", amount(low), amount(high)));
        rows.push(vec![
            match resource {
                Resource::Time => "time",
                Resource::Memory => "memory per node",
                Resource::Cpu => "cores",
                Resource::Gpu => "GPUs",
            }
            .to_owned(),
            figure(*requested, amount),
            format!("{}{interval}", amount(*median)),
            amount(*most),
            if *requested == Some(*proposed) { "as requested".to_owned() } else { amount(*proposed) },
        ]);
    }
    if !of.proposals.is_empty() {
        text.push_str(&table_within(&rows, limit));
    }
    if let Some(least) = of.proposals.iter().map(|of| of.fits_at_least).reduce(f64::min) {
        text.push_str(&format!(
            "The next job like these needs no more than the most with a probability of {:.0} % or more, of each resource.\n",
            (100.0 * least).floor()
        ));
    }
    if !of.lines.is_empty() {
        text.push('\n');
    }
    for line in of.lines {
        text.push_str(&format!("{line}\n"));
    }
    for note in of.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot;

    fn proposal(resource: Resource, requested: f64, needed: [f64; 4], proposed: f64) -> Proposal {
        Proposal {
            resource,
            requested: Some(requested),
            jobs: 40,
            median: needed[1],
            median_interval: Some((needed[0], needed[2])),
            most: needed[3],
            proposed,
            fits_at_least: 40.0 / 41.0,
        }
    }

    #[test]
    fn proposals_are_laid_out_as_recorded() {
        const GIB: f64 = 1_073_741_824.0;
        let proposals = [
            proposal(Resource::Time, 86_400.0, [10_000.0, 10_800.0, 11_000.0, 14_400.0], 16_200.0),
            proposal(Resource::Memory, 64.0 * GIB, [7.5 * GIB, 8.0 * GIB, 8.2 * GIB, 9.0 * GIB], 10.0 * GIB),
            proposal(Resource::Cpu, 16.0, [16.0; 4], 16.0),
        ];
        let lines = ["#SBATCH --time=04:30:00".to_owned(), "#SBATCH --mem=10G".to_owned()];
        let notes = ["cannot read `x` of gres: expected a number above 0".to_owned()];
        let request = Request::default();
        let output = Output {
            scheduler: Scheduler::Slurm,
            request: &request,
            like_by: "name and size",
            jobs: 48,
            finished: 40,
            proposals: &proposals,
            lines: &lines,
            notes: &notes,
        };
        snapshot::check("advise", &text(&output, Some(80)));
    }

    #[test]
    fn a_note_says_why_there_are_no_proposals() {
        let wanted = Request { name: Some("train".to_owned()), ..Request::default() };
        let found = notes(&Unread::default(), 1, 0, 7, &wanted);
        assert_eq!(
            found,
            [
                "no proposals: of 7 ended jobs of yours, 1 is like train, of which 0 finished and were summarised; 5 are needed"
            ]
        );
        assert!(notes(&Unread::default(), 9, 5, 9, &wanted).is_empty());
    }
}
