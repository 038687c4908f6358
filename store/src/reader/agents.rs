//! Sessions of agents.

use polymeter_proto::read::AgentRow;

use super::recorded_statements::Selection;
use crate::row::from_row;
use crate::value::Value;

/// Selects the newest session of each node that sent something after a time, with the node's own lines of the
/// ledger and its losses since. The newest is the one that sent last: the clock of the node may have been set
/// back between two of them.
pub(super) fn agents_since(since_ns: i64) -> Selection<'static, AgentRow> {
    // The conditions on the ledger are those of its unique index.
    let sum = |column: &str| {
        format!(
            "coalesce((SELECT CAST(sum(line.{column}) AS bigint) FROM ledger_line AS line
                 WHERE line.session_key = session.session_key AND coalesce(line.handle, -1) = -1
                     AND coalesce(line.job_key, 0) = 0), 0)"
        )
    };
    let statement = format!(
        "SELECT session.node, session.session_id, session.agent_version, session.started, session.last_seen,
             session.last_sample, session.ended, session.end_reason, {}, {}, {}, {},
             coalesce((SELECT CAST(sum(loss.samples) AS bigint) FROM loss
                 WHERE loss.node = session.node AND loss.time >= $1), 0)
         FROM session
         WHERE session.last_seen >= $1 AND NOT EXISTS (
             SELECT 1 FROM session AS later WHERE later.node = session.node
                 AND (later.last_seen > session.last_seen
                      OR later.last_seen = session.last_seen AND later.started > session.started)
         )
         ORDER BY session.node, session.session_id",
        sum("due"),
        sum("taken"),
        sum("late"),
        sum("missed")
    );
    Selection::new(statement, vec![Value::time(since_ns / 1000)])
}

from_row!(AgentRow {
    node,
    session_id,
    version,
    started_ns: TimeNs,
    last_seen_ns: TimeNs,
    last_sample_ns: TimeNs,
    ended_ns: TimeNs,
    end_reason,
    due,
    taken,
    late,
    missed,
    lost,
});
