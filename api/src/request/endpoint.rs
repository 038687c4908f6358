//! Declaration of an endpoint, from which routes and the document of the API follow.

use std::pin::Pin;

use axum::response::Response;
use serde_json::Value;

use super::arguments::Parameter;
use super::call::Call;
use crate::answer::{Format, Problem};

pub(crate) type Answer = Pin<Box<dyn Future<Output = Result<Response, Problem>> + Send>>;

pub(crate) struct Endpoint {
    /// Has its parameters in braces.
    pub(crate) path: &'static str,
    /// Text for programs.
    pub(crate) id: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) parameters: &'static [Parameter],
    /// Usual one first.
    pub(crate) formats: &'static [Format],
    /// Schema of the JSON answer.
    pub(crate) answer: fn() -> Value,
    /// Schema of the body (POST); none for requests without one (GET).
    pub(crate) body: Option<fn() -> Value>,
    pub(crate) handler: fn(Call) -> Answer,
}

pub(crate) const TABLE: &[Format] = &[Format::Json, Format::Csv];

pub(crate) const OBJECT: &[Format] = &[Format::Json];
