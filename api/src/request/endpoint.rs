//! The declaration of an endpoint, from which routes and the document of the API follow.

use std::pin::Pin;

use axum::response::Response;
use serde_json::Value;

use super::arguments::Parameter;
use super::call::Call;
use crate::answer::{Format, Problem};

/// The answer of an endpoint.
pub(crate) type Answer = Pin<Box<dyn Future<Output = Result<Response, Problem>> + Send>>;

pub(crate) struct Endpoint {
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
    /// The schema of the body of a request that changes something (POST); none for others (GET).
    pub(crate) body: Option<fn() -> Value>,
    pub(crate) handler: fn(Call) -> Answer,
}

pub(crate) const TABLE: &[Format] = &[Format::Json, Format::Csv];

/// The format of most other answers.
pub(crate) const OBJECT: &[Format] = &[Format::Json];
