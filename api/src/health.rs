//! The state of the API, for load balancers: without authentication and without details.

use axum::http::StatusCode;
use axum::response::Response;
use polymeter_service::clock;

use crate::call::{Services, json};
use crate::limits;
use crate::principal::{Principal, Scope};
use crate::problem::Problem;

/// The user `nobody`, who owns no jobs. The answer does not depend on jobs.
const UNPRIVILEGED: Principal = Principal { uid: u32::MAX, scope: Scope::Read };

/// Answers that the process serves requests.
pub(crate) fn alive() -> Response {
    json("{\"status\":\"ok\"}")
}

/// Answers if the store can be read.
pub(crate) async fn ready(services: &Services) -> Response {
    if is_ready(services).await {
        return json("{\"status\":\"ok\"}");
    }
    Problem::busy(StatusCode::SERVICE_UNAVAILABLE, "the store cannot be read", 5).into_response()
}

async fn is_ready(services: &Services) -> bool {
    let mut last = services.readiness.0.lock().await;
    let is_recent = |read_ns: u64| clock::monotonic_ns().saturating_sub(read_ns) < limits::READY_AGE_NS;
    if let Some((is_ready, read_ns)) = *last
        && is_recent(read_ns)
    {
        return is_ready;
    }
    let is_ready = services.readers.read(UNPRIVILEGED, |_, _| Ok(())).await.is_ok();
    *last = Some((is_ready, clock::monotonic_ns()));
    is_ready
}
