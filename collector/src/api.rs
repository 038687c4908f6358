//! HTTP API of this collector: its links to the other parts.

use std::path::Path;
use std::sync::Arc;

use polymeter_analysis::advice;
use polymeter_api::{
    AccessOf, AgentStatus, Api, ApiListener, ApiMetrics, KnownAdministrators, Links, LiveValues, TokenService,
};
use polymeter_service::clock;
use polymeter_store::reader::Access;
use prometheus_client::registry::Unit;
use tokio::sync::mpsc;

use crate::agents::{AgentDirectory, AgentInfo};
use crate::backlog::Backlog;
use crate::clock_offsets::ClockOffsets;
use crate::config::CollectorConfig;
use crate::control::ApiRequests;
use crate::error::CollectorStartError;
use crate::limits;
use crate::metrics::Metrics;
use crate::roles::Roles;

/// Returns the queue of the API's requests for control, if it is configured.
pub(crate) fn start_api(
    config: &CollectorConfig,
    directory: &AgentDirectory,
    (metrics, roles): (&Metrics, Roles),
    live: Option<LiveValues>,
    (backlog, clock_offsets): (Backlog, ClockOffsets),
) -> Result<(Option<Api>, ApiRequests), CollectorStartError> {
    let (control, queue) = mpsc::channel(limits::CONTROL_API_REQUESTS);
    let known = KnownAdministrators::new(roles.known().into_iter());
    let learned = known.clone();
    let access: Arc<AccessOf> = Arc::new(move |uid| {
        let access = roles.access(uid);
        if access == Access::All {
            learned.add(uid);
        }
        access
    });
    // Tokens can be created without this collector's API: another one of the store may have one.
    let tokens = TokenService::start(config.store.clone(), Arc::clone(&access));
    let tokens = tokens.map_err(CollectorStartError::Thread)?;
    let requests = ApiRequests {
        queue,
        tokens: tokens.clone(),
        clock_offsets: clock_offsets.clone(),
        is_served: config.api.is_some(),
    };
    let Some(api) = &config.api else { return Ok((None, requests)) };
    let directory = directory.clone();
    let listener = ApiListener::open(&api.listen).map_err(CollectorStartError::Api)?;
    let advice = config.job_end.as_ref().map_or(Path::new(advice::DIRECTORY), |job_end| &job_end.advice);
    let links = Links {
        store: config.store.clone(),
        access,
        administrators: known,
        agents: Arc::new(move || {
            directory
                .connected(clock::realtime_us())
                .into_iter()
                .map(|agent| status(agent, &clock_offsets))
                .collect()
        }),
        live: live.unwrap_or_default(),
        is_behind: Arc::new(move || backlog.exists(clock::monotonic_ns())),
        control,
        metrics: registered(metrics),
        tokens: tokens.clone(),
        advice: advice.to_owned(),
    };
    let api = Api::start(api, listener, links).map_err(CollectorStartError::Thread)?;
    Ok((Some(api), requests))
}

fn registered(metrics: &Metrics) -> ApiMetrics {
    let of_api = ApiMetrics::default();
    let help = "Requests to the HTTP API, by resource and class of the status";
    metrics.register("api_requests", help, of_api.requests.clone());
    let help = "Time from a request to the HTTP API to the end of its answer";
    metrics.register_with_unit("api_request_duration", help, Unit::Seconds, of_api.duration.clone());
    let help = "Bytes of answers of the HTTP API";
    metrics.register_with_unit("api_sent", help, Unit::Bytes, of_api.sent_bytes.clone());
    metrics.register("api_connections", "Open connections to the HTTP API", of_api.connections.clone());
    let help =
        "Connections to the HTTP API that were refused, since their user has too many or no place is free";
    metrics.register("api_refused_connections", help, of_api.refused_connections.clone());
    let help = "Connections to the HTTP API that were closed for new ones";
    metrics.register("api_displaced_connections", help, of_api.displaced_connections.clone());
    let help = "Requests to the HTTP API without valid authentication";
    metrics.register("api_failed_authentications", help, of_api.failed_authentications.clone());
    of_api
}

fn status(agent: AgentInfo, clocks: &ClockOffsets) -> AgentStatus {
    let jobs = agent.jobs.into_iter().map(|(job, owner_uid)| (job.to_string(), owner_uid));
    AgentStatus {
        node: agent.node.to_string(),
        started_us: agent.started_us,
        jobs: jobs.collect(),
        clock: clocks.of(agent.session),
    }
}
