//! `polymeter report`: reports the resource usage of a stored job.

use std::path::{Path, PathBuf};

use clap_complete::engine::ArgValueCompleter;
use polymeter_analysis::advice;
use polymeter_analysis::array::summarise;
use polymeter_analysis::charts;
use polymeter_analysis::gather::gather;
use polymeter_analysis::jobstats;
use polymeter_analysis::model::Report;
use polymeter_service::clock;

use crate::client::job_completion;
use crate::client::read_source::ReadSource;
use crate::failure::Failure;
use crate::output::terminal;
use crate::report::array_text::array_text;
use crate::report::choice::{Chosen, choose_any, names_one_of};
use crate::report::findings::add_findings;
use crate::report::html;
use crate::report::render::{self, Beginning, Sections};
use crate::report::step::keep_step;
use crate::store_failure::cannot_read;

#[derive(Debug, clap::Args)]
pub(crate) struct ReportArguments {
    /// The job's id, also as schedulers print it: 4009_1, 4009+1, or 4009.batch for a step; of an array the
    /// summary over its tasks; of several runs the last, and a note says how to choose another: key:17.
    /// Default: the job of the `polymeter run` around the command, else SLURM_JOB_ID or OAR_JOB_ID, else your
    /// job that started last.
    #[arg(value_name = "JOB", add = ArgValueCompleter::new(job_completion::stored))]
    job: Option<String>,

    #[command(flatten)]
    source: ReadSource,

    #[command(flatten)]
    sections: Sections,

    /// The directory of the site's rules for findings.
    #[arg(long, value_name = "DIRECTORY", default_value = advice::DIRECTORY)]
    advice: PathBuf,

    /// Write a page with charts; - for the standard output. It needs no network.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "jobstats"])]
    html: Option<PathBuf>,

    /// Replace an existing page.
    #[arg(long, requires = "html")]
    force: bool,

    /// Print JSON.
    #[arg(long, conflicts_with = "jobstats")]
    json: bool,

    /// Print the summary of Jobstats, `JS1:...`, which reportseff and job_defense_shield read.
    #[arg(long)]
    jobstats: bool,
}

pub(crate) fn execute(arguments: &ReportArguments) -> Result<(), Failure> {
    let advice = &arguments.advice;
    if advice != Path::new(advice::DIRECTORY) && !advice.is_dir() {
        return Err(Failure::Usage(format!(
            "cannot read the rules: {} is no directory; name another with --advice",
            advice.display()
        )));
    }
    let mut source = arguments.source.open_for(arguments.job.as_deref())?;
    let page = arguments.html.as_deref().map(|path| html::Output::open(path, arguments.force)).transpose()?;
    let is_summary = page.is_none() && !arguments.jobstats;
    let chosen = match choose_any(&mut source, arguments.job.as_deref())? {
        Chosen::Array { id, jobs } if is_summary => {
            let array = summarise(source.reader.as_mut(), &id, &jobs).map_err(cannot_read)?;
            return if arguments.json {
                terminal::print_json(&array)
            } else {
                terminal::print(&array_text(&array, terminal::width_limit(&std::io::stdout())))
            };
        }
        Chosen::Array { id, jobs } => return Err(names_one_of(&id, &jobs)),
        Chosen::Job(chosen) => *chosen,
    };
    let mut report = gather(source.reader.as_mut(), &chosen.job, None).map_err(cannot_read)?;
    if let Some(note) = chosen.note.filter(|note| !report.notes.contains(note)) {
        report.notes.push(note);
    }
    add_findings(&mut report, &arguments.advice);
    if let Some(step) = &chosen.step {
        keep_step(&mut report, step)?;
    }
    if let Some(page) = page {
        if chosen.step.is_none() {
            charts::refine(source.reader.as_mut(), &chosen.job, &mut report).map_err(cannot_read)?;
        }
        return page.write(&html::page(&report, clock::realtime_us()));
    }
    print(&report, arguments)
}

fn print(report: &Report, arguments: &ReportArguments) -> Result<(), Failure> {
    if arguments.json {
        return terminal::print_json(report);
    }
    if arguments.jobstats {
        let summary = jobstats::summary(report)
            .map_err(|error| Failure::because("cannot make the summary of Jobstats", &error))?;
        return terminal::print(&(summary + "\n"));
    }
    let stdout = std::io::stdout();
    let (limit, has_colours) = (terminal::width_limit(&stdout), terminal::has_colours(&stdout));
    let text = render::chosen(report, &arguments.sections, Beginning::Screen, limit, has_colours);
    terminal::print_styled(&text)
}
