//! The declaration of an endpoint, from which routes and the document of the API follow.

use std::pin::Pin;

use axum::response::Response;
use serde_json::Value;

use crate::arguments::Parameter;
use crate::call::Call;
use crate::format::Format;
use crate::problem::Problem;

/// The method of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Post,
}

/// The answer of an endpoint.
pub(crate) type Answer = Pin<Box<dyn Future<Output = Result<Response, Problem>> + Send>>;

pub(crate) struct Endpoint {
    pub(crate) method: Method,
    /// The path, with its parameters in braces.
    pub(crate) path: &'static str,
    /// A name for programs.
    pub(crate) id: &'static str,
    /// One sentence.
    pub(crate) summary: &'static str,
    pub(crate) parameters: &'static [Parameter],
    /// The formats, the usual one first.
    pub(crate) formats: &'static [Format],
    /// The schema of the JSON form.
    pub(crate) answer: fn() -> Value,
    /// The schema of the body of a request; none for requests without one.
    pub(crate) body: Option<fn() -> Value>,
    pub(crate) handler: fn(Call) -> Answer,
}

/// The formats of tables.
pub(crate) const TABLE: &[Format] = &[Format::Json, Format::Csv];

/// The format of streams of events.
pub(crate) const EVENTS: &[Format] = &[Format::Events];

/// The format of everything else.
pub(crate) const OBJECT: &[Format] = &[Format::Json];

/// The schema of an object whose members are described elsewhere.
pub(crate) fn any_object() -> Value {
    serde_json::json!({"type": "object"})
}
