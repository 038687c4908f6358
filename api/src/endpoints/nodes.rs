//! The user of a request, and the connected agents.

use polymeter_proto::control::Scope;
use polymeter_service::users;
use polymeter_store::reader::Access;
use serde_json::{Value, json};

use crate::answer::{Column, Table, Type};
use crate::links::AgentStatus;
use crate::request::{Endpoint, OBJECT, TABLE};

pub(super) static WHOAMI: Endpoint = Endpoint {
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
    path: "/api/v1/nodes",
    id: "nodes",
    summary: "The nodes with a connected agent; for users, those on which a job of theirs runs.",
    parameters: &[],
    formats: TABLE,
    answer: || AGENTS.schema(&[]),
    body: None,
    handler: |call| {
        let agents = call.services.links.agents.clone();
        Box::pin(call.stream(move |_, access, chunks| {
            let mut agents = agents();
            agents.sort_by(|a, b| a.node.cmp(&b.node));
            if let Access::Owner(uid) = access {
                for agent in &mut agents {
                    agent.jobs.retain(|(_, owner)| *owner == Some(uid));
                }
                agents.retain(|agent| !agent.jobs.is_empty());
            }
            AGENTS.write(chunks, &agents, &[])
        }))
    },
};
