//! Rows of a job's series and events, as several resources list them.

use polymeter_analysis::plan_fold::FoldedChange;
use polymeter_proto::series::{Role, role_of};
use polymeter_proto::step_level::StepLevel;
use polymeter_proto::units;
use polymeter_store::reader::{FiringRow, KeptIntervalRow, LossRow, MarkRow, SeriesRow};
use serde_json::{Value, json};

use super::table::{Column, Table, Type, micros};

pub(crate) static SERIES: Table<SeriesRow> = Table {
    name: "series",
    columns: &[
        Column::new("id", Type::Integer, "The id of the series, for `samples`.", |row| json!(row.series_id)),
        Column::new("node", Type::Text, "The node.", |row| json!(row.node)),
        Column::new("metric", Type::Text, "The metric.", |row| json!(row.metric)),
        Column::new("unit", Type::Text, "The unit of the values.", |row| json!(row.unit)),
        Column::new("kind", Type::Text, "`counter` or `gauge`.", |row| json!(row.kind)),
        Column::optional("rate_unit", Type::Text, "The unit of the rates of a counter.", |row| {
            json!(rate(row).map(|(unit, _)| unit))
        }),
        Column::new("labels", Type::Labels, "The labels.", labels),
        Column::optional(
            "role",
            Type::Text,
            "Of a device: `physical`, `part` of others, `stacked` on others, or `local`: memory, loopback. Sums take the lowest devices.",
            |row| json!(role(row).map(|role| role.kind().as_str())),
        ),
        Column::new("below", Type::Texts, "The devices below it, whose series contain its bytes.", |row| {
            json!(role(row).iter().flat_map(Role::below).collect::<Vec<_>>())
        }),
    ],
};

pub(crate) fn labels(row: &SeriesRow) -> Value {
    Value::Object(row.labels.iter().map(|(key, value)| (key.to_owned(), json!(value))).collect())
}

fn role(row: &SeriesRow) -> Option<Role> {
    role_of(&row.metric, &row.labels)
}

/// Unit of the rates of a counter, and the factor from its increase per second; none for a gauge.
pub(crate) fn rate(row: &SeriesRow) -> Option<(&'static str, f64)> {
    rate_of(&row.metric, &row.unit, &row.kind)
}

/// Does what [`rate`] does, for a metric.
pub(crate) fn rate_of(metric: &str, unit: &str, kind: &str) -> Option<(&'static str, f64)> {
    (kind == "counter").then(|| units::rate_unit(metric, unit))
}

/// `step` or `task`; none for a series of the whole job.
pub(crate) fn level(row: &SeriesRow) -> Option<&'static str> {
    StepLevel::of_labels(|label| row.labels.get(label).is_some()).map(StepLevel::as_str)
}

pub(crate) static MARKS: Table<MarkRow> = Table {
    name: "marks",
    columns: &[
        Column::new("time_us", Type::Integer, "The time.", |row| json!(micros(row.time_ns))),
        Column::new("node", Type::Text, "The node.", |row| json!(row.node)),
        Column::new("name", Type::Text, "The name.", |row| json!(row.name)),
        Column::new("kind", Type::Text, "`instant`, or `begin` or `end` of a phase.", |row| json!(row.kind)),
        Column::optional("actor", Type::Text, "The user that made the mark.", |row| json!(row.actor)),
    ],
};

pub(crate) static KEPT_INTERVALS: Table<KeptIntervalRow> = Table {
    name: "kept_intervals",
    columns: &[
        Column::new("begin_us", Type::Integer, "The begin.", |row| json!(micros(row.begin_ns))),
        Column::new("end_us", Type::Integer, "The end.", |row| json!(micros(row.end_ns))),
        Column::new("node", Type::Text, "The node.", |row| json!(row.node)),
        Column::new(
            "trigger",
            Type::Text,
            "The number of the trigger, the same on all nodes that kept the interval.",
            |row| json!(row.trigger.cast_unsigned().to_string()),
        ),
        Column::new("reason", Type::Text, "Why it was kept.", |row| json!(row.reason)),
        Column::new("samples", Type::Integer, "The number of samples that the node sent of it.", |row| {
            json!(row.samples)
        }),
    ],
};

pub(crate) static FIRINGS: Table<FiringRow> = Table {
    name: "firings",
    columns: &[
        Column::new("time_us", Type::Integer, "The time.", |row| json!(micros(row.time_ns))),
        Column::new("node", Type::Text, "The node on which it fired.", |row| json!(row.node)),
        Column::new("rule", Type::Text, "The name of the rule.", |row| json!(row.rule)),
        Column::optional("actor", Type::Text, "The user that added the rule; none for the site.", |row| {
            json!(row.actor)
        }),
        Column::new("why", Type::Text, "Why it fired.", |row| json!(row.why)),
        Column::new(
            "actions",
            Type::Text,
            "What was done on the node, or why it could not be done.",
            |row| json!(row.actions),
        ),
        Column::new("trigger", Type::Text, "The number of the intervals that were kept.", |row| {
            json!(row.trigger.cast_unsigned().to_string())
        }),
        Column::optional(
            "begin_us",
            Type::Integer,
            "The begin of what all nodes were asked to keep.",
            |row| json!(row.begin_ns.map(micros)),
        ),
        Column::optional("end_us", Type::Integer, "Its end.", |row| json!(row.end_ns.map(micros))),
        Column::optional(
            "nodes_asked",
            Type::Integer,
            "The number of nodes that were asked; none before that.",
            |row| json!(row.nodes_asked),
        ),
        Column::new(
            "nodes_missing",
            Type::Labels,
            "The nodes that could not keep it, with the reasons.",
            |row| json!(row.nodes_missing),
        ),
    ],
};

/// Very many changes are folded.
pub(crate) static PLAN_CHANGES: Table<FoldedChange> = Table {
    name: "plan_changes",
    columns: &[
        Column::new("time_us", Type::Integer, "The time at which it took effect.", |row| {
            json!(micros(row.row.time_ns))
        }),
        Column::new("node", Type::Text, "The node.", |row| json!(row.row.node)),
        Column::new("metric", Type::Text, "The metric.", |row| json!(row.row.metric)),
        Column::optional(
            "old_period_us",
            Type::Integer,
            "The previous period; none if it was not sampled.",
            |row| json!(row.row.old_period_us),
        ),
        Column::optional(
            "new_period_us",
            Type::Integer,
            "The new period; none if it is no longer sampled.",
            |row| json!(row.row.new_period_us),
        ),
        Column::optional(
            "old_window_us",
            Type::Integer,
            "The previous length of windows; none if each sample was sent.",
            |row| json!(row.row.old_window_us),
        ),
        Column::optional(
            "new_window_us",
            Type::Integer,
            "The length of the windows that are sent; none if each sample is sent.",
            |row| json!(row.row.new_window_us),
        ),
        Column::new("cause", Type::Text, "The cause.", |row| json!(row.row.cause)),
        Column::optional("actor", Type::Text, "The user that requested it.", |row| json!(row.row.actor)),
        Column::optional("until_us", Type::Integer, "The time at which it expires.", |row| {
            json!(row.row.until_ns.map(micros))
        }),
        Column::optional(
            "level",
            Type::Text,
            "`step` or `task` if it concerns each step or task; none for the job as a whole.",
            |row| json!(row.row.level),
        ),
        Column::new(
            "changes",
            Type::Integer,
            "The number of changes that it stands for: 1, or more where there are very many.",
            |row| json!(row.changes),
        ),
        Column::optional(
            "last_time_us",
            Type::Integer,
            "The time of the last of them, if they were not all at once.",
            |row| json!(row.last_ns.map(micros)),
        ),
    ],
};

pub(crate) static LOSSES: Table<LossRow> = Table {
    name: "losses",
    columns: &[
        Column::new("time_us", Type::Integer, "The time at which the loss was detected.", |row| {
            json!(micros(row.time_ns))
        }),
        Column::new("node", Type::Text, "The node.", |row| json!(row.node)),
        Column::new("session", Type::Text, "The agent's session.", |row| json!(row.session_id)),
        Column::optional("source", Type::Text, "The source; none if it is unknown.", |row| json!(row.source)),
        Column::new("samples", Type::Integer, "The number of samples.", |row| json!(row.samples)),
        Column::new("reason", Type::Text, "The reason.", |row| json!(row.reason)),
        Column::new("first_us", Type::Integer, "The time of the oldest lost sample.", |row| {
            json!(micros(row.first_time_ns))
        }),
        Column::new("last_us", Type::Integer, "The time of the newest lost sample.", |row| {
            json!(micros(row.last_time_ns))
        }),
    ],
};
