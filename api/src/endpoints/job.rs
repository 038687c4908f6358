//! One job.

use polymeter_store::reader::{JobNodeRow, JobRow};
use serde_json::json;

use super::events::list;
use super::parameters::{KEY, find_job, key};
use crate::answer::{Column, Table, Type, micros};
use crate::request::{Endpoint, OBJECT, TABLE};

pub(super) static FACTS: Table<JobRow> = Table {
    name: "jobs",
    columns: &[
        Column::new("key", Type::Integer, "The key of the job, which is never used again.", |job| {
            json!(job.job_key)
        }),
        Column::new("id", Type::Text, "The scheduler's id.", |job| json!(job.job_id)),
        Column::optional("display_id", Type::Text, "The id as the scheduler displays it.", |job| {
            json!(job.display_id)
        }),
        Column::optional("name", Type::Text, "The name that the owner gave it.", |job| json!(job.name)),
        Column::optional("user", Type::Text, "The name of the owner.", |job| json!(job.owner)),
        Column::optional("uid", Type::Integer, "The numeric id of the owner.", |job| json!(job.owner_uid)),
        Column::optional("cluster", Type::Text, "The cluster.", |job| json!(job.cluster)),
        Column::optional("account", Type::Text, "The account.", |job| json!(job.account)),
        Column::optional("queue", Type::Text, "The queue or partition.", |job| json!(job.queue)),
        Column::optional("state", Type::Text, "The final state.", |job| json!(job.state)),
        Column::new("started_us", Type::Integer, "The start, in microseconds since the epoch.", |job| {
            json!(micros(job.started_ns))
        }),
        Column::optional("ended_us", Type::Integer, "The end; none while it runs.", |job| {
            json!(job.ended_ns.map(micros))
        }),
        Column::new("nodes", Type::Texts, "The nodes on which it was tracked.", |job| json!(job.nodes)),
        Column::new("lost_nodes", Type::Texts, "The nodes whose agent was lost.", |job| {
            json!(job.lost_nodes)
        }),
        Column::optional("node_list", Type::Text, "All nodes, as the scheduler writes them.", |job| {
            json!(job.node_list)
        }),
        Column::optional("cores", Type::Integer, "The number of cores.", |job| json!(job.cores)),
        Column::optional("gpus", Type::Integer, "The number of GPUs.", |job| json!(job.gpus)),
        Column::optional("memory_bytes", Type::Integer, "The requested memory on each node.", |job| {
            json!(job.memory_bytes)
        }),
        Column::optional("time_limit_s", Type::Integer, "The time limit, in seconds.", |job| {
            json!(job.time_limit_s)
        }),
        Column::optional("exit_code", Type::Integer, "The exit status of its script.", |job| {
            json!(job.exit_code)
        }),
        Column::optional("exit_signal", Type::Integer, "The signal that ended its script.", |job| {
            json!(job.exit_signal)
        }),
        Column::optional(
            "restarts",
            Type::Integer,
            "The number of times that it was started again.",
            |job| json!(job.restarts),
        ),
        Column::optional("unread", Type::Text, "What the scheduler said and could not be read.", |job| {
            json!(job.unread)
        }),
        Column::optional("run", Type::Run, "The command, if `polymeter run` started it.", |job| {
            json!(job.run)
        }),
        Column::optional(
            "scheduler",
            Type::Text,
            "The scheduler that announced it: `slurm` or `oar`.",
            |job| json!(job.scheduler),
        ),
    ],
};

pub(super) static JOB: Endpoint = Endpoint {
    path: "/api/v1/jobs/{key}",
    id: "job",
    summary: "The facts about a job.",
    parameters: &[KEY],
    formats: OBJECT,
    answer: || FACTS.row_schema(),
    body: None,
    handler: |call| {
        let key = key(&call.arguments);
        Box::pin(call.object(move |reader, _| Ok(FACTS.object(&find_job(reader, key)?))))
    },
};

static NODES: Table<JobNodeRow> = Table {
    name: "nodes",
    columns: &[
        Column::new("node", Type::Text, "The node.", |row| json!(row.node)),
        Column::new(
            "started_us",
            Type::Integer,
            "The time at which the node began to track the job.",
            |row| json!(micros(row.started_ns)),
        ),
        Column::optional("ended_us", Type::Integer, "The end of the job there; none while it runs.", |row| {
            json!(row.ended_ns.map(micros))
        }),
        Column::new("is_shared", Type::Boolean, "True if another job ran on the node meanwhile.", |row| {
            json!(row.is_shared)
        }),
        Column::optional(
            "clock_offset_us",
            Type::Integer,
            "The time by which the clock of the node was ahead of the collector's, if that is much; the times are without it.",
            |row| json!(row.clock_offset_us),
        ),
    ],
};

pub(super) static JOB_NODES: Endpoint = Endpoint {
    path: "/api/v1/jobs/{key}/nodes",
    id: "job_nodes",
    summary: "The nodes of a job, and its times there.",
    parameters: &[KEY],
    formats: TABLE,
    answer: || NODES.schema(&[]),
    body: None,
    handler: |call| list(call, &NODES, |reader, key| reader.job_nodes(key)),
};
