//! `polymeter watch`: what is sampled, as it is sampled, from the agent itself: a live view in a terminal, else lines.

mod lines;
mod plain;
mod screen;
mod view;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use polymeter_agent::control::{Answer, Watch};
use polymeter_proto::name::Selector;
use polymeter_proto::period::Period;

use crate::control::{Job, Place};
use crate::failure::Failure;
use lines::Lines;
use plain::Form;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only these, such as 'cpu.*' memory.current.
    #[arg(value_name = "SELECTOR")]
    selectors: Vec<Selector>,

    /// Lines of text, also in a terminal: time, metric, value, unit.
    #[arg(long)]
    plain: bool,

    /// Lines, for so long.
    #[arg(long = "for", value_name = "TIME")]
    duration: Option<Period>,

    /// Lines, so many samples.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    #[command(flatten)]
    job: Job,

    #[command(flatten)]
    place: Place,
}

impl Arguments {
    pub(crate) const fn is_json(&self) -> bool {
        self.place.json
    }

    fn wants_lines(&self) -> bool {
        let dumb = std::env::var_os("TERM").is_none_or(|terminal| terminal == "dumb");
        let asked = self.plain || self.place.json || self.duration.is_some() || self.count.is_some();
        asked || dumb || !std::io::stdout().is_terminal()
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let job = arguments.job.id(&arguments.place.socket)?;
    let metrics = arguments.selectors.iter().map(ToString::to_string).collect();
    let watch = Watch { job: job.clone(), metrics };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|error| Failure::refused("cannot watch", &error))?;
    let shown = runtime.block_on(async {
        let mut lines = Lines::ask(&arguments.place.socket, watch).await?;
        let first = lines.next().await?;
        // Before the screen changes, so that a refusal is seen.
        if let Answer::Refused(refusal) = first.answer {
            return Err(Failure::Answered(Box::new(refusal)));
        }
        if !arguments.wants_lines() {
            let view = view::View::new(job, arguments.selectors.clone());
            return screen::show(view, first, lines, &arguments.place.socket).await;
        }
        let form = Form { json: arguments.place.json, count: arguments.count };
        let showing = plain::show(first, lines, form);
        match arguments.duration.map(|time| Duration::from_micros(time.as_micros())) {
            None => showing.await?,
            // That the time is over is what was wanted.
            Some(time) => tokio::time::timeout(time, showing).await.unwrap_or(Ok(()))?,
        }
        Ok(ExitCode::SUCCESS)
    });
    // A request that the agent has not answered yet is not waited for.
    runtime.shutdown_background();
    shown
}
