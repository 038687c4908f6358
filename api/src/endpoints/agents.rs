//! Health of Polymeter: the agents, their versions and clocks, and what they did not deliver.

use std::collections::HashMap;

use polymeter_service::clock;
use polymeter_store::reader::AgentRow;
use serde_json::json;

use super::parameters::{FROM_US, NODE, now_ns, time_ns};
use crate::answer::{Column, Table, Type, micros};
use crate::limits;
use crate::links::{AgentStatus, ClockOffset};
use crate::request::{Endpoint, Kind, Parameter, TABLE};

/// Default time of the answer.
const DAY_NS: i64 = 86_400_000_000_000;

struct Health {
    row: AgentRow,
    connected: Option<AgentStatus>,
}

impl Health {
    fn clock(&self) -> Option<ClockOffset> {
        self.connected.as_ref()?.clock
    }
}

static AGENTS_TABLE: Table<Health> = Table {
    name: "agents",
    columns: &[
        Column::new("node", Type::Text, "The node.", |of| json!(of.row.node)),
        Column::new("session", Type::Text, "Its newest session.", |of| json!(of.row.session_id)),
        Column::new("version", Type::Text, "The version of the agent.", |of| json!(of.row.version)),
        Column::new(
            "is_connected",
            Type::Boolean,
            "True if this collector gets its frames: the session has not ended, and the last one came at most 75 s ago.",
            |of| json!(of.connected.is_some()),
        ),
        Column::new(
            "started_us",
            Type::Integer,
            "The start of the session, by the clock of the node.",
            |of| json!(micros(of.row.started_ns)),
        ),
        Column::new(
            "last_seen_us",
            Type::Integer,
            "The time of the last frame, by the clock of the database.",
            |of| json!(micros(of.row.last_seen_ns)),
        ),
        Column::optional(
            "last_sample_us",
            Type::Integer,
            "The time of the newest sample, by the clock of the node.",
            |of| json!(of.row.last_sample_ns.map(micros)),
        ),
        Column::optional(
            "delay_us",
            Type::Integer,
            "From the newest sample to its arrival: the time in buffers, and the difference of the clocks. If it is negative, the node's clock is ahead.",
            |of| {
                json!(
                    of.row
                        .last_sample_ns
                        .map(|sample_ns| micros(of.row.last_seen_ns.saturating_sub(sample_ns)))
                )
            },
        ),
        Column::optional(
            "clock_offset_us",
            Type::Integer,
            "The node's clock less the collector's: positive if the node's clock is ahead. It is measured once a minute by a request and its answer; none if this collector has no answer.",
            |of| json!(of.clock().map(|clock| clock.offset_us)),
        ),
        Column::optional(
            "clock_error_us",
            Type::Integer,
            "The most by which the offset may be wrong: half of the time between the request and its answer.",
            |of| json!(of.clock().map(|clock| clock.error_us)),
        ),
        Column::optional(
            "clock_measured_us",
            Type::Integer,
            "The time of the measurement, by the clock of the collector.",
            |of| json!(of.clock().map(|clock| clock.measured_us)),
        ),
        Column::optional("ended_us", Type::Integer, "The end of the session; none while it lasts.", |of| {
            json!(of.row.ended_ns.map(micros))
        }),
        Column::optional("end_reason", Type::Text, "The reason of the end.", |of| json!(of.row.end_reason)),
        Column::new(
            "due",
            Type::Integer,
            "The samples of the node's own sources that were due in the session.",
            |of| json!(of.row.due),
        ),
        Column::new("taken", Type::Integer, "Those that were taken.", |of| json!(of.row.taken)),
        Column::new("late", Type::Integer, "Those that were taken late.", |of| json!(of.row.late)),
        Column::new("missed", Type::Integer, "Those that were missed.", |of| json!(of.row.missed)),
        Column::new("lost", Type::Integer, "The samples of the node that were lost in the time.", |of| {
            json!(of.row.lost)
        }),
    ],
};

pub(super) static AGENTS: Endpoint = Endpoint {
    path: "/api/v1/agents",
    id: "agents",
    summary: "The agents that sent something since `from_us`, by default in the last day, sorted by node; for administrators, others have an empty list.",
    parameters: &[
        NODE,
        FROM_US,
        Parameter::query("limit", Kind::Integer(1, limits::PAGE_AGENTS), "The number of agents on a page."),
        Parameter::query("cursor", Kind::Text, "The member `next` of the previous page."),
    ],
    formats: TABLE,
    answer: || {
        let now = json!({"type": "integer", "description": "The time of the answer, by the clock of the collector."});
        let next = json!({"type": ["string", "null"], "description": "The cursor of the next page."});
        AGENTS_TABLE.schema(&[("now_us", now), ("next", next)])
    },
    body: None,
    handler: |call| {
        let agents = call.services.links.agents.clone();
        let (node, after) = (call.arguments.owned(NODE.name), call.arguments.owned("cursor"));
        let limit = call.arguments.integer("limit").unwrap_or(limits::PAGE_AGENTS);
        let limit = usize::try_from(limit).unwrap_or(1);
        let since_ns =
            time_ns(&call.arguments, FROM_US.name).unwrap_or_else(|| now_ns().saturating_sub(DAY_NS));
        Box::pin(call.stream(move |reader, _, chunks| {
            let mut rows = reader.agents(since_ns)?;
            rows.retain(|row: &AgentRow| {
                node.as_ref().is_none_or(|node| *node == row.node)
                    && after.as_ref().is_none_or(|after| row.node > *after)
            });
            // The order of the database may be that of a language.
            rows.sort_by(|one, other| one.node.cmp(&other.node));
            let has_more = rows.len() > limit;
            rows.truncate(limit);
            let next = rows.last().filter(|_| has_more).map(|row| row.node.clone());
            let mut connected: HashMap<String, AgentStatus> =
                agents().into_iter().map(|agent| (agent.node.clone(), agent)).collect();
            let agents = rows.into_iter().map(|row| {
                let connected =
                    connected.remove(&row.node).filter(|agent| agent.started_us == micros(row.started_ns));
                Health { row, connected }
            });
            let further = [("now_us", json!(clock::realtime_us())), ("next", json!(next))];
            AGENTS_TABLE.write(chunks, agents, &further)
        }))
    },
};
