//! Document of the API (OpenAPI 3.1), which follows from the declarations of the endpoints.

use axum::response::Response;
use polymeter_proto::limits::NAME_BYTES;
use serde_json::{Map, Value, json};

use crate::answer::{Format, json_response};
use crate::limits;
use crate::request::{Endpoint, FORMAT, Kind, Parameter};

const PRINTABLE: &str = r"^[^\u0000-\u001f\u007f-\u009f]+$";

const SELECTOR: &str = r"^[a-z0-9_*?]+(\.[a-z0-9_*?]+)*$";

/// About the state of the API: path, id and summary.
const HEALTH: [(&str, &str, &str); 2] = [
    ("/health", "health", "The process serves requests; without authentication."),
    ("/ready", "ready", "The store can be read; without authentication, and asked once a second at most."),
];

pub(super) fn response(endpoints: &[&Endpoint]) -> Response {
    json_response(document(endpoints).to_string())
}

fn document(endpoints: &[&Endpoint]) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for endpoint in endpoints {
        let method = if endpoint.body.is_some() { "post" } else { "get" };
        let path = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        if let Some(methods) = path.as_object_mut() {
            methods.insert(method.to_owned(), operation(endpoint));
        }
    }
    for (path, id, summary) in HEALTH {
        paths.insert(path.to_owned(), json!({"get": health(id, summary)}));
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

fn problem() -> Value {
    json!({
        "description": "A problem (RFC 9457).",
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/problem"}}},
    })
}

fn health(id: &str, summary: &str) -> Value {
    let schema =
        json!({"type": "object", "required": ["status"], "properties": {"status": {"enum": ["ok"]}}});
    let answer = json!({"description": "The answer.", "content": {"application/json": {"schema": schema}}});
    json!({"operationId": id, "summary": summary, "security": [{}], "responses": {"200": answer, "default": problem()}})
}

fn operation(endpoint: &Endpoint) -> Value {
    let names: Vec<&str> = endpoint.formats.iter().map(|format| format.name()).collect();
    let mut parameters: Vec<Value> = endpoint.parameters.iter().map(parameter).collect();
    parameters.push(json!({
        "name": FORMAT.name, "in": "query", "required": false, "schema": {"type": "string", "enum": names},
        "description": FORMAT.help,
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
    let mut responses =
        json!({"200": {"description": "The answer.", "content": content}, "default": problem()});
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
        Kind::Integers(max) => json!({
            "type": "array", "minItems": 1, "maxItems": max,
            "items": {"type": "integer", "format": "int64", "minimum": 0, "maximum": i64::MAX},
        }),
        Kind::Selectors => json!({
            "type": "array", "minItems": 1, "maxItems": limits::SELECTORS,
            "items": {"type": "string", "pattern": SELECTOR, "maxLength": NAME_BYTES},
        }),
    };
    json!({
        "name": parameter.name, "in": if parameter.is_path { "path" } else { "query" }, "required": parameter.is_required,
        "description": parameter.help, "schema": schema, "style": if parameter.is_path { "simple" } else { "form" }, "explode": false,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use std::fs;
    use std::path::Path;

    use axum::http::StatusCode;

    use super::*;
    use crate::endpoints::ALL;

    const REFERENCE: &str = include_str!("../../../docs/reference/api.md");

    /// Lines of the table that follows a heading.
    fn table(heading: &str) -> impl Iterator<Item = &'static str> {
        let (_, rest) = REFERENCE.split_once(&format!("\n## {heading}\n")).unwrap();
        rest.lines()
            .skip_while(|line| !line.starts_with('|'))
            .take_while(|line| line.starts_with('|'))
            .skip(2)
    }

    #[test]
    fn the_reference_lists_what_the_document_declares() {
        let mut listed = BTreeSet::new();
        let mut last = String::new();
        for line in table("Resources") {
            let cell = line.split('|').nth(1).unwrap();
            for name in cell.split('`').skip(1).step_by(2) {
                // `.../x` has the beginning of the path before it.
                if let Some(end) = name.strip_prefix("...") {
                    last.truncate(last.rfind('/').unwrap());
                    last.push_str(end);
                } else {
                    name.clone_into(&mut last);
                }
                assert!(listed.insert(last.clone()), "{last} is listed twice");
            }
        }
        let document = document(ALL);
        let paths = document["paths"].as_object().unwrap().iter();
        let declared = paths.flat_map(|(path, methods)| {
            methods.as_object().unwrap().keys().map(move |method| format!("{} {path}", method.to_uppercase()))
        });
        assert_eq!(listed, declared.collect());
    }

    fn sources(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        entries
            .flat_map(
                |path| {
                    if path.is_dir() { sources(&path) } else { vec![fs::read_to_string(path).unwrap()] }
                },
            )
            .collect()
    }

    #[test]
    fn the_reference_lists_each_status_of_an_error() {
        let texts = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).concat();
        let documented: String =
            table("Errors and limits").map(|line| line.split('|').nth(1).unwrap()).collect();
        for code in 400..600 {
            let Some(reason) = StatusCode::from_u16(code).unwrap().canonical_reason() else { continue };
            let constant = format!("StatusCode::{},", reason.to_uppercase().replace(' ', "_"));
            if texts.contains(&constant) && code != 500 {
                assert!(documented.contains(&code.to_string()), "{code} {reason}");
            }
        }
    }

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
