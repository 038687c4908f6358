//! The user of a request, and the connected agents.

use polymeter_proto::control::Scope;
use polymeter_service::users;
use polymeter_store::reader::Access;
use serde_json::{Value, json};

use crate::endpoint::{Endpoint, Method, OBJECT, TABLE};
use crate::links::AgentStatus;
use crate::table::{Column, Table, Type};

pub(super) static WHOAMI: Endpoint = Endpoint {
    method: Method::Get,
    path: "/api/v1/whoami",
    id: "whoami",
    summary: "The user of the request, and the rights.",
    parameters: &[],
    formats: OBJECT,
    answer: || {
        json!({
            "type": "object",
            "required": ["uid", "user", "is_administrator", "scope"],
            "properties": {
                "uid": {"type": "integer"}, "user": {"type": ["string", "null"]}, "is_administrator": {"type": "boolean"},
                "scope": {"enum": Scope::ALL.map(Scope::name)},
            },
        })
    },
    body: None,
    handler: |call| {
        let principal = call.principal;
        Box::pin(call.object(move |_, access| {
            let is_administrator = access == Access::All;
            let scope = if is_administrator { Scope::Admin } else { principal.scope.min(Scope::Control) };
            Ok(json!({
                "uid": principal.uid, "user": users::name_of(principal.uid), "is_administrator": is_administrator, "scope": scope.name(),
            }))
        }))
    },
};

static AGENTS: Table<AgentStatus> = Table {
    name: "nodes",
    columns: &[
        Column::new("node", Type::Text, "The node.", |agent| json!(agent.node)),
        Column::new(
            "started_us",
            Type::Integer,
            "The start of the agent's session, in microseconds since the epoch.",
            |agent| json!(agent.started_us),
        ),
        Column::new(
            "jobs",
            Type::Texts,
            "The scheduler's ids of the jobs that it tracks and the user may see.",
            jobs,
        ),
    ],
};

fn jobs(agent: &AgentStatus) -> Value {
    json!(agent.jobs.iter().map(|(job, _)| job).collect::<Vec<_>>())
}

pub(super) static NODES: Endpoint = Endpoint {
    method: Method::Get,
    path: "/api/v1/nodes",
    id: "nodes",
    summary: "The nodes with a connected agent; for users, those on which a job of theirs runs.",
    parameters: &[],
    formats: TABLE,
    answer: || AGENTS.schema(&[]),
    body: None,
    handler: |call| {
        let (format, agents) = (call.format, call.services.links.agents.clone());
        Box::pin(call.stream(move |_, access, chunks| {
            let mut out = AGENTS.writer(format, chunks)?;
            let mut agents = agents();
            agents.sort_by(|a, b| a.node.cmp(&b.node));
            for mut agent in agents {
                if let Access::Owner(uid) = access {
                    agent.jobs.retain(|(_, owner)| *owner == Some(uid));
                    if agent.jobs.is_empty() {
                        continue;
                    }
                }
                out.push(&agent)?;
            }
            out.end(&[] as &[(&str, Value)])
        }))
    },
};
