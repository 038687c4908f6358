//! State of the API, for load balancers: without authentication and without details.

use axum::response::Response;
use polymeter_service::clock;
use tokio::sync::Mutex;

use crate::access::{Principal, Scope};
use crate::answer::{Problem, json_response};
use crate::limits;
use crate::readers::Readers;

/// User `nobody`, who owns no jobs. The answer does not depend on jobs.
const UNPRIVILEGED: Principal = Principal { uid: u32::MAX, scope: Scope::Read };

/// True if the store could be read, and when. Requests wait for one that asks the store.
pub(super) type Readiness = Mutex<Option<(bool, u64)>>;

pub(super) async fn alive() -> Response {
    json_response("{\"status\":\"ok\"}")
}

pub(super) async fn ready(readers: &Readers, last: &Readiness) -> Result<Response, Problem> {
    if is_ready(readers, last).await {
        return Ok(alive().await);
    }
    Err(Problem::busy("the store cannot be read", 5))
}

async fn is_ready(readers: &Readers, last: &Readiness) -> bool {
    let mut last = last.lock().await;
    if let Some((is_ready, read_ns)) = *last
        && clock::monotonic_ns().saturating_sub(read_ns) < limits::READY_AGE_NS
    {
        return is_ready;
    }
    let is_ready = readers.read(UNPRIVILEGED, |_, _| Ok(())).await.is_ok();
    *last = Some((is_ready, clock::monotonic_ns()));
    is_ready
}
