//! The HTTP API of this collector: its links to the other parts.

use std::path::Path;
use std::sync::Arc;

use polymeter_analysis::advice;
use polymeter_api::{AgentStatus, Api, ApiListener, Links, LiveValues};
use tokio::sync::mpsc;

use crate::agents::{AgentDirectory, AgentInfo};
use crate::config::CollectorConfig;
use crate::control::ApiRequests;
use crate::error::CollectorStartError;
use crate::limits;
use crate::reading::Administrators;

/// Starts the API, if it is configured. Returns the queue of its requests for control, too.
///
/// # Errors
/// Returns an error if its socket cannot be opened, or a thread cannot be started.
pub(crate) fn start_api(
    config: &CollectorConfig,
    directory: AgentDirectory,
    live: LiveValues,
) -> Result<(Option<Api>, ApiRequests), CollectorStartError> {
    let (control, queue) = mpsc::channel(limits::CONTROL_API_REQUESTS);
    let Some(api) = &config.api else { return Ok((None, ApiRequests { queue, is_served: false })) };
    let listener = ApiListener::open(&api.listen).map_err(CollectorStartError::Api)?;
    let administrators = Administrators::look_up(&config.control.administrators);
    let advice = config.job_end.as_ref().map_or(Path::new(advice::DIRECTORY), |job_end| &job_end.advice);
    let links = Links {
        store: config.store.clone(),
        access: Arc::new(move |uid| administrators.access(uid)),
        agents: Arc::new(move || directory.all().into_iter().map(status).collect()),
        live,
        control,
        advice: advice.to_owned(),
    };
    let api = Api::start(api, listener, links).map_err(CollectorStartError::Thread)?;
    Ok((Some(api), ApiRequests { queue, is_served: true }))
}

fn status(agent: AgentInfo) -> AgentStatus {
    let jobs = agent.jobs.into_iter().map(|(job, owner_uid)| (job.to_string(), owner_uid));
    AgentStatus { node: agent.node.to_string(), started_us: agent.started_us, jobs: jobs.collect() }
}
