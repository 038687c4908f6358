//! User of a request, and the connected agents.

use std::collections::HashSet;

use polymeter_proto::control::Scope;
use polymeter_proto::limits::QUERY_JOBS;
use polymeter_service::users;
use polymeter_store::StoreError;
use polymeter_store::reader::{Access, JobFilter, Read};
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
            "required": ["uid", "user", "is_administrator", "role", "sees_all", "accounts", "scope"],
            "properties": {
                "uid": {"type": "integer"}, "user": {"type": ["string", "null"]}, "is_administrator": {"type": "boolean"},
                "role": {"enum": ["user", "manager", "support", "administrator"]},
                "sees_all": {"type": "boolean", "description": "True if the user sees all jobs and the series of nodes."},
                "accounts": {"type": "array", "items": {"type": "string"}, "description": "The accounts whose jobs a manager sees."},
                "scope": {"enum": Scope::ALL.map(Scope::name)},
            },
        })
    },
    body: None,
    handler: |call| {
        let principal = call.principal;
        Box::pin(call.object(move |_, access| {
            let is_administrator = access == Access::All;
            let scope = if principal.scope == Scope::Admin && !is_administrator { Scope::Control } else { principal.scope };
            Ok(json!({
                "uid": principal.uid, "user": users::name_of(principal.uid), "is_administrator": is_administrator,
                "role": access.role(), "sees_all": access.sees_all(), "accounts": access.accounts(), "scope": scope.name(),
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

/// Nodes and ids of the running jobs that the user may see.
fn running(reader: &mut dyn Read) -> Result<HashSet<(String, String)>, StoreError> {
    let mut found = HashSet::new();
    let mut filter = JobFilter { is_ended: Some(false), limit: QUERY_JOBS, ..JobFilter::default() };
    loop {
        let jobs = reader.jobs(&filter)?;
        for job in &jobs {
            found.extend(job.nodes.iter().map(|node| (node.clone(), job.job_id.clone())));
        }
        filter.before = jobs.last().map(|job| (job.listed, job.job_key));
        if jobs.len() < QUERY_JOBS as usize {
            return Ok(found);
        }
    }
}

pub(super) static NODES: Endpoint = Endpoint {
    path: "/api/v1/nodes",
    id: "nodes",
    summary: "The nodes with a connected agent; for users and managers, those on which a job runs that they may see.",
    parameters: &[],
    formats: TABLE,
    answer: || AGENTS.schema(&[]),
    body: None,
    handler: |call| {
        let agents = call.services.links.agents.clone();
        Box::pin(call.stream(move |reader, access, chunks| {
            let mut agents = agents();
            agents.sort_by(|a, b| a.node.cmp(&b.node));
            if let Access::Jobs(of) = access {
                // Agents do not know who manages their jobs.
                let managed = if of.accounts.is_empty() { HashSet::new() } else { running(reader)? };
                for AgentStatus { node, jobs, .. } in &mut agents {
                    jobs.retain(|(job, owner)| {
                        *owner == Some(of.uid) || managed.contains(&(node.clone(), job.clone()))
                    });
                }
                agents.retain(|agent| !agent.jobs.is_empty());
            }
            AGENTS.write(chunks, &agents, &[])
        }))
    },
};
