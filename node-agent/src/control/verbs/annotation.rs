//! Refusals of user-supplied data, for `mark` and `push`.

use polymeter_proto::control::Refusal;
use polymeter_proto::series::Identifier;

use crate::control::request_handler::RequestHandler;
use crate::request::AnnotateError;

pub(super) fn refuse(
    handler: &RequestHandler<'_>,
    job: Option<&Identifier>,
    error: AnnotateError,
) -> Refusal {
    let (code, field) = match &error {
        AnnotateError::Access(error) => return handler.denied(job, *error),
        AnnotateError::TooManySeries(_) => ("too_many", Some("labels")),
        AnnotateError::TooManyRegions(_) => ("too_many", Some("regions")),
        AnnotateError::TooManyNames(_) => ("too_many", Some("metric")),
        AnnotateError::NotBegun { .. } => ("not_begun", Some("name")),
        AnnotateError::TooFast { .. } => ("too_fast", None),
    };
    Refusal::new(code, field, &error.to_string())
}
