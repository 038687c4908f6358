//! The state of the API, for load balancers: without authentication and without details.

use axum::http::StatusCode;
use axum::response::Response;

use crate::call::{Services, json};
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
    match services.readers.read(UNPRIVILEGED, |_, _| Ok(())).await {
        Ok(()) => json("{\"status\":\"ok\"}"),
        Err(_) => {
            Problem::busy(StatusCode::SERVICE_UNAVAILABLE, "the store cannot be read", 5).into_response()
        }
    }
}
