//! The document of the API (OpenAPI 3.1), which follows from the declarations of the endpoints.

use axum::response::Response;
use polymeter_proto::limits::NAME_BYTES;
use serde_json::{Map, Value, json};

use crate::arguments::{Kind, Parameter};
use crate::call::json as json_response;
use crate::endpoint::{Endpoint, Method};
use crate::format::Format;
use crate::limits;

/// Text without control characters.
const PRINTABLE: &str = r"^[^\u0000-\u001f\u007f-\u009f]+$";

/// A selector of metrics.
const SELECTOR: &str = r"^[a-z0-9_*?]+(\.[a-z0-9_*?]+)*$";

/// Returns the response with the document.
pub(crate) fn response(endpoints: &[&Endpoint]) -> Response {
    json_response(document(endpoints).to_string())
}

fn document(endpoints: &[&Endpoint]) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for endpoint in endpoints {
        let method = match endpoint.method {
            Method::Get => "get",
            Method::Post => "post",
        };
        let path = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        if let Some(methods) = path.as_object_mut() {
            methods.insert(method.to_owned(), operation(endpoint));
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Polymeter", "version": env!("CARGO_PKG_VERSION"), "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
        // A client of the Unix socket needs no token.
        "security": [{"token": []}, {}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"problem": {
                "type": "object",
                "required": ["type", "title", "status", "code", "detail"],
                "properties": {
                    "type": {"type": "string"}, "title": {"type": "string"}, "status": {"type": "integer"},
                    "code": {"type": "string"}, "detail": {"type": "string"},
                },
            }},
        },
    })
}

fn operation(endpoint: &Endpoint) -> Value {
    let names: Vec<&str> = endpoint.formats.iter().map(|format| format.name()).collect();
    let mut parameters: Vec<Value> = endpoint.parameters.iter().map(parameter).collect();
    parameters.push(json!({
        "name": "format", "in": "query", "required": false, "schema": {"type": "string", "enum": names},
        "description": "The format, instead of the header `Accept`.",
    }));
    let content: Map<String, Value> = endpoint
        .formats
        .iter()
        .map(|format| {
            let schema = match format {
                Format::Json => (endpoint.answer)(),
                Format::Csv | Format::Events | Format::Parquet => json!({"type": "string"}),
            };
            (format.media_type().to_owned(), json!({"schema": schema}))
        })
        .collect();
    let problem = json!({
        "description": "A problem (RFC 9457).",
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/problem"}}},
    });
    let mut responses =
        json!({"200": {"description": "The answer.", "content": content}, "default": problem});
    if let (true, Some(responses)) = (endpoint.formats.contains(&Format::Events), responses.as_object_mut()) {
        responses
            .insert("204".to_owned(), json!({"description": "There will be no events: the job has ended."}));
    }
    let mut operation = json!({
        "operationId": endpoint.id,
        "summary": endpoint.summary,
        "parameters": parameters,
        "responses": responses,
    });
    if let (Some(body), Some(members)) = (endpoint.body, operation.as_object_mut()) {
        let content = json!({"application/json": {"schema": body()}});
        members.insert("requestBody".to_owned(), json!({"required": true, "content": content}));
    }
    operation
}

fn parameter(parameter: &Parameter) -> Value {
    let schema = match parameter.kind {
        Kind::Text => {
            json!({"type": "string", "minLength": 1, "maxLength": limits::TEXT_CHARACTERS, "pattern": PRINTABLE})
        }
        Kind::Formed(pattern) => json!({"type": "string", "pattern": pattern}),
        Kind::Choice(choices) => json!({"type": "string", "enum": choices}),
        Kind::Integer(min, max) => {
            json!({"type": "integer", "format": "int64", "minimum": min, "maximum": max})
        }
        Kind::Integers => json!({
            "type": "array", "minItems": 1, "maxItems": limits::LISTED_SERIES,
            "items": {"type": "integer", "format": "int64", "minimum": 0, "maximum": i64::MAX},
        }),
        Kind::Selectors => json!({
            "type": "array", "minItems": 1, "maxItems": limits::SELECTORS,
            "items": {"type": "string", "pattern": SELECTOR, "maxLength": NAME_BYTES},
        }),
    };
    json!({
        "name": parameter.name, "in": if parameter.is_path { "path" } else { "query" }, "required": parameter.is_path,
        "description": parameter.help, "schema": schema, "style": if parameter.is_path { "simple" } else { "form" }, "explode": false,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::endpoints::ALL;

    #[test]
    fn the_document_declares_each_parameter_of_each_path() {
        let document = document(ALL);
        assert_eq!(document["openapi"], "3.1.0");
        let ids: BTreeSet<&str> = ALL.iter().map(|endpoint| endpoint.id).collect();
        assert_eq!(ids.len(), ALL.len(), "ids are unique");
        for endpoint in ALL {
            let in_path = endpoint.path.split('{').skip(1).filter_map(|part| part.split('}').next());
            let declared = endpoint.parameters.iter().filter(|parameter| parameter.is_path);
            assert_eq!(
                in_path.collect::<Vec<_>>(),
                declared.map(|p| p.name).collect::<Vec<_>>(),
                "{}",
                endpoint.path
            );
            assert!((endpoint.answer)().is_object() && document["paths"][endpoint.path].is_object());
            assert!(
                endpoint.summary.ends_with('.') && endpoint.parameters.iter().all(|p| p.help.ends_with('.'))
            );
        }
    }
}
