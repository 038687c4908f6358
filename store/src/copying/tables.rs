//! Tables of a store, as a copy needs them: data.

use crate::value::Column;
use crate::value::ColumnType::{Bool, Integer, Json, Real, Text, Time};

#[derive(Debug)]
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) columns: &'static [Column],
    /// True if the database generates the first column, the key.
    pub(super) has_identity: bool,
}

const fn table(name: &'static str, columns: &'static [Column]) -> Table {
    Table { name, columns, has_identity: false }
}

const fn with_identity(name: &'static str, columns: &'static [Column]) -> Table {
    Table { name, columns, has_identity: true }
}

/// Tables with few rows, those that others refer to first.
pub(super) const TABLES: &[Table] = &[
    table("node", &[("node", Text), ("first_seen", Time)]),
    table("metric", &[("metric", Text), ("unit", Text), ("kind", Text)]),
    with_identity(
        "job",
        &[
            ("job_key", Integer),
            ("job_id", Text),
            ("cluster", Text),
            ("owner", Text),
            ("owner_uid", Integer),
            ("started", Time),
            ("ended", Time),
            ("account", Text),
            ("queue", Text),
            ("nodes", Text),
            ("cores", Integer),
            ("state", Text),
            ("exit_code", Integer),
            ("exit_signal", Integer),
            ("name", Text),
            ("display_id", Text),
            ("time_limit_s", Integer),
            ("memory_bytes", Integer),
            ("gpus", Integer),
            ("restarts", Integer),
            ("unread", Text),
            ("run", Text),
            ("scheduler", Text),
        ],
    ),
    table(
        "job_node",
        &[
            ("job_key", Integer),
            ("node", Text),
            ("started", Time),
            ("ended", Time),
            ("session_id", Text),
            ("handle", Integer),
            ("lost", Bool),
            ("job_cores", Integer),
            ("job_gpus", Integer),
        ],
    ),
    table("job_end", &[("job_key", Integer), ("noticed", Time), ("attempts", Integer)]),
    table(
        "job_usage",
        &[
            ("job_key", Integer),
            ("ended", Time),
            ("attempts", Integer),
            ("array_id", Text),
            ("elapsed_s", Real),
            ("nodes", Real),
            ("cores", Real),
            ("cpu_s", Real),
            ("cores_peak", Real),
            ("memory_request_bytes", Real),
            ("memory_used_bytes", Real),
            ("memory_bound_bytes", Real),
            ("gpus", Real),
            ("gpus_used", Real),
            ("gpu_s", Real),
            ("energy_j", Real),
        ],
    ),
    table(
        "job_energy",
        &[
            ("job_key", Integer),
            ("node", Text),
            ("part", Text),
            ("source", Text),
            ("devices", Text),
            ("joules", Real),
            ("error_joules", Real),
            ("delay_s", Real),
            ("is_counted", Bool),
            ("is_estimate", Bool),
        ],
    ),
    with_identity(
        "notice",
        &[
            ("number", Integer),
            ("rule", Text),
            ("about", Text),
            ("job_key", Integer),
            ("uid", Integer),
            ("recipient", Text),
            ("subject", Text),
            ("text", Text),
            ("created", Time),
            ("result", Text),
        ],
    ),
    table("notice_opt_out", &[("uid", Integer), ("rule", Text)]),
    with_identity(
        "session",
        &[
            ("session_key", Integer),
            ("session_id", Text),
            ("node", Text),
            ("agent_version", Text),
            ("started", Time),
            ("last_sequence", Integer),
            ("last_seen", Time),
            ("stored", Integer),
            ("last_sample", Time),
            ("ended", Time),
            ("end_reason", Text),
            ("clock_offset_us", Integer),
            ("node_cpus", Integer),
            ("node_cores", Integer),
            ("roof_memory_bytes_per_s", Integer),
            ("roof_double_flop_per_s", Integer),
            ("roof_single_flop_per_s", Integer),
        ],
    ),
    with_identity("ledger_source", &[("source_id", Integer), ("source", Text)]),
    with_identity(
        LEDGER_LINE,
        &[
            ("ledger_id", Integer),
            ("session_key", Integer),
            ("job_key", Integer),
            ("handle", Integer),
            ("due", Integer),
            ("taken", Integer),
            ("late", Integer),
            ("missed", Integer),
            ("absent", Integer),
            ("dropped", Integer),
            ("not_kept", Integer),
            ("skipped", Integer),
            ("rejected", Integer),
            ("quarantined", Integer),
            ("stored", Integer),
            ("source_id", Integer),
        ],
    ),
    table(
        "loss",
        &[
            ("time", Time),
            ("node", Text),
            ("session_id", Text),
            ("job_key", Integer),
            ("samples", Integer),
            ("reason", Text),
            ("first_time", Time),
            ("last_time", Time),
            ("source", Text),
        ],
    ),
    with_identity("series_shape", &[("shape_id", Integer), ("digest", Text)]),
    table(
        "series_shape_member",
        &[("shape_id", Integer), ("position", Integer), ("metric", Text), ("labels", Json), ("role", Text)],
    ),
    table(
        "series_block",
        &[
            ("first_id", Integer),
            ("shape_id", Integer),
            ("job_key", Integer),
            ("node", Text),
            ("job_id", Text),
            ("served_node", Text),
        ],
    ),
    table("series_counter", &[("next_id", Integer)]),
    with_identity("plan_change_set", &[("set_id", Integer), ("digest", Text)]),
    table(
        "plan_change_set_member",
        &[
            ("set_id", Integer),
            ("position", Integer),
            ("metric", Text),
            ("old_period_us", Integer),
            ("new_period_us", Integer),
            ("old_window_us", Integer),
            ("new_window_us", Integer),
        ],
    ),
    table(
        "plan_change_event",
        &[
            ("time", Time),
            ("until", Time),
            ("job_key", Integer),
            ("set_id", Integer),
            ("node", Text),
            ("job_id", Text),
            ("cause", Text),
            ("actor", Text),
            ("reason", Text),
            ("level", Text),
        ],
    ),
    table(
        "mark",
        &[
            ("time", Time),
            ("node", Text),
            ("job_key", Integer),
            ("job_id", Text),
            ("name", Text),
            ("actor", Text),
            ("detail", Json),
        ],
    ),
    table(
        "stack_function",
        &[("job_key", Integer), ("function_id", Integer), ("name", Text), ("module", Text)],
    ),
    table(
        "stack_node",
        &[("job_key", Integer), ("stack_id", Integer), ("parent_id", Integer), ("function_id", Integer)],
    ),
    table(
        "stack_interval",
        &[
            ("job_key", Integer),
            ("time", Time),
            ("interval_id", Integer),
            ("node", Text),
            ("metric", Text),
            ("length_us", Integer),
            ("period_us", Integer),
            ("samples", Integer),
            ("lost", Integer),
            ("throttled", Integer),
            ("cut", Integer),
            ("unresolved", Integer),
        ],
    ),
    table(
        "stack_sample",
        &[
            ("job_key", Integer),
            ("time", Time),
            ("interval_id", Integer),
            ("process", Integer),
            ("stack_id", Integer),
            ("count", Integer),
        ],
    ),
    table(
        "window_histogram",
        &[("job_key", Integer), ("time", Time), ("series_id", Integer), ("least", Real), ("count", Integer)],
    ),
    table(
        "kept_interval",
        &[
            ("job_key", Integer),
            ("node", Text),
            ("started", Time),
            ("ended", Time),
            ("trigger_id", Integer),
            ("reason", Text),
            ("samples", Integer),
        ],
    ),
    table(
        "trigger_firing",
        &[
            ("trigger_id", Integer),
            ("job_key", Integer),
            ("node", Text),
            ("time", Time),
            ("rule", Text),
            ("actor", Text),
            ("started", Time),
            ("ended", Time),
            ("why", Text),
            ("actions", Text),
            ("nodes_asked", Integer),
            ("nodes_missing", Json),
        ],
    ),
    table("kept_sample", &[("time", Time), ("series_id", Integer), ("value", Real)]),
    table(
        "retention",
        &[("relation", Text), ("keep_days", Integer), ("dropped_before", Time), ("complete_before", Time)],
    ),
    table("kept_job", &[("job_key", Integer), ("kept_at", Time), ("until", Time), ("is_complete", Bool)]),
];

/// Table with counts that a database may keep elsewhere for a while.
pub(super) const LEDGER_LINE: &str = "ledger_line";

/// Tables that have a row for each sample.
pub(super) const SAMPLES: Table =
    table("samples", &[("time", Time), ("series_id", Integer), ("value", Real), COUNT, MIN, MAX, SUM]);
pub(super) const QUARANTINE: Table = table(
    "samples_quarantine",
    &[("time", Time), ("series_id", Integer), ("value", Real), ("received", Time), COUNT, MIN, MAX, SUM],
);

/// Columns of windows, which are null for samples.
const COUNT: Column = ("count", Integer);
const MIN: Column = ("min", Real);
const MAX: Column = ("max", Real);
const SUM: Column = ("sum", Real);

/// Tells whether a column of a table of numbers may be null: those of windows, in which no count is 0.
pub(super) fn is_optional(table: &Table, column: &str) -> bool {
    let has_samples = [SAMPLES.name, QUARANTINE.name].contains(&table.name);
    has_samples && [COUNT, MIN, MAX, SUM].iter().any(|(name, _)| *name == column)
        || ["rate_min", "rate_max"].contains(&column)
}

/// Columns of rollups in a file; a database lacks the last two, and buckets of 10 s lack the first.
const BUCKETS: &[Column] = &[
    ("parts", Integer),
    ("series_id", Integer),
    ("time", Time),
    ("count", Integer),
    ("min", Real),
    ("max", Real),
    ("sum", Real),
    ("first", Real),
    ("last", Real),
    ("rate_min", Real),
    ("rate_max", Real),
    ("first_time", Time),
    ("last_time", Time),
];
const TENS: &[Column] = BUCKETS.split_at(1).1;

/// A table of rollups.
pub(super) struct RollupTable {
    pub(super) name: &'static str,
    /// The view of its rows.
    pub(super) view: &'static str,
    /// The width of its buckets.
    pub(super) width_us: i64,
    columns_of_file: &'static [Column],
}

impl RollupTable {
    pub(super) const fn columns(&self, is_file: bool) -> &'static [Column] {
        if is_file {
            self.columns_of_file
        } else {
            self.columns_of_file.split_at(self.columns_of_file.len() - 2).0
        }
    }
}

pub(super) const ROLLUPS: [RollupTable; 3] = [
    RollupTable { name: "rollup_10s", view: "samples_10s", width_us: 10_000_000, columns_of_file: TENS },
    RollupTable { name: "rollup_1min", view: "samples_1min", width_us: 60_000_000, columns_of_file: BUCKETS },
    RollupTable { name: "rollup_1h", view: "samples_1h", width_us: 3_600_000_000, columns_of_file: BUCKETS },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::sqlite;

    /// Tables and columns that belong to one store: its version, its collectors with their requests,
    /// tokens and comparisons, the state of its maintenance.
    const LEFT_OUT: [&str; 14] = [
        "store_version",
        "collector",
        "control_request",
        "control_answer",
        "api_token",
        "straggler_part",
        "straggler_firing",
        "clock_check",
        "rollup",
        "session.pending",
        "session.collector_id",
        "job_end.claimed_until",
        "job_usage.claimed_until",
        "sqlite_sequence",
    ];

    #[test]
    fn every_column_of_a_store_is_copied_or_left_out() {
        let (_directory, mut connection) = sqlite::new_store();
        let columns: Vec<(String, String)> = connection
            .select(
                "SELECT m.name, c.name FROM sqlite_master AS m JOIN pragma_table_info(m.name) AS c WHERE m.type = 'table'",
                &[],
            )
            .unwrap();
        let mut missing = BTreeMap::new();
        for (table, column) in columns {
            let is_left_out =
                [table.as_str(), &format!("{table}.{column}")].iter().any(|name| LEFT_OUT.contains(name));
            let is_rollup = ROLLUPS.iter().any(|rollup| {
                rollup.name == table && rollup.columns(true).iter().any(|(name, _)| *name == column)
            });
            let is_copied = TABLES
                .iter()
                .chain([&SAMPLES, &QUARANTINE])
                .any(|copied| copied.name == table && copied.columns.iter().any(|(name, _)| *name == column));
            if !(is_left_out || is_rollup || is_copied) {
                missing.insert(table, column);
            }
        }
        assert_eq!(missing, BTreeMap::new(), "add them to TABLES or LEFT_OUT");
    }
}
