//! `polymeter watch`: shows samples as the agent takes them, in a live view or as lines.

mod plain;
mod screen;
mod stream;
mod view;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap_complete::engine::ArgValueCompleter;
use polymeter_proto::control::{Answer, WatchRequest};
use polymeter_proto::name::Selector;
use polymeter_proto::period::Period;

use crate::client::agent::AgentOptions;
use crate::client::completion::{metrics, periods};
use crate::client::job_choice::JobChoice;
use crate::failure::Failure;
use plain::LineOptions;
use stream::WatchStream;

#[derive(Debug, clap::Args)]
pub(crate) struct WatchArguments {
    /// The metrics to show, such as 'cpu.*' memory.current.
    #[arg(value_name = "SELECTOR", add = ArgValueCompleter::new(metrics::metric))]
    selectors: Vec<Selector>,

    /// Print one line per sample (time, metric, value, unit) instead of the live view.
    #[arg(long)]
    plain: bool,

    /// Print lines and exit after this time.
    #[arg(long = "for", value_name = "TIME", add = ArgValueCompleter::new(periods::duration))]
    duration: Option<Period>,

    /// Print lines and exit after this number of samples.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    #[command(flatten)]
    job: JobChoice,

    #[command(flatten)]
    agent: AgentOptions,
}

impl WatchArguments {
    pub(crate) const fn is_json(&self) -> bool {
        self.agent.json
    }

    /// Returns true if lines are printed instead of the live view.
    fn prints_lines(&self) -> bool {
        let is_dumb = std::env::var_os("TERM").is_none_or(|terminal| terminal == "dumb");
        let is_requested = self.plain || self.is_json() || self.duration.is_some() || self.count.is_some();
        is_requested || is_dumb || !std::io::stdout().is_terminal()
    }
}

pub(crate) fn execute(arguments: &WatchArguments) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|error| Failure::because("cannot watch", &error))?;
    let job = arguments.job.id(&arguments.agent.socket)?;
    let result = runtime.block_on(watch(arguments, job));
    // Do not wait for a request that the agent has not answered yet.
    runtime.shutdown_background();
    result
}

async fn watch(arguments: &WatchArguments, job: Option<String>) -> Result<ExitCode, Failure> {
    let metrics = arguments.selectors.iter().map(ToString::to_string).collect();
    let request = WatchRequest { job: job.clone(), metrics };
    let mut stream = WatchStream::open(&arguments.agent.socket, request).await?;
    let first = stream.next().await?;
    // A refusal is reported before the screen changes.
    if let Answer::Refused(refusal) = first.answer {
        return Err(Failure::Refused(Box::new(refusal)));
    }
    if !arguments.prints_lines() {
        let view = view::View::new(job, arguments.selectors.clone());
        return screen::show(view, first, stream, &arguments.agent.socket).await;
    }
    let options = LineOptions { json: arguments.is_json(), count: arguments.count };
    let printing = plain::print(first, stream, options);
    match arguments.duration.map(|time| Duration::from_micros(time.as_micros())) {
        None => printing.await?,
        // The end of the requested time is success.
        Some(time) => tokio::time::timeout(time, printing).await.unwrap_or(Ok(()))?,
    }
    Ok(ExitCode::SUCCESS)
}
