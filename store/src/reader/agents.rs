//! Sessions of agents.

use polymeter_proto::read::AgentRow;

use super::connection::Selection;
use crate::value::{Row, Value};

/// Selects the newest session of each node that sent something after a time, with the node's own lines of the ledger
/// and its losses since.
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
             SELECT 1 FROM session AS later WHERE later.node = session.node AND later.started > session.started
         )
         ORDER BY session.node, session.session_id",
        sum("due"),
        sum("taken"),
        sum("late"),
        sum("missed")
    );
    Selection { statement, parameters: vec![Value::time(since_ns / 1000)], read }
}

fn read(row: &mut Row) -> AgentRow {
    AgentRow {
        node: row.text(),
        session_id: row.text(),
        version: row.text(),
        started_ns: row.time_ns(),
        last_seen_ns: row.time_ns(),
        last_sample_ns: row.optional_time_ns(),
        ended_ns: row.optional_time_ns(),
        end_reason: row.optional_text(),
        due: row.count(),
        taken: row.count(),
        late: row.count(),
        missed: row.count(),
        lost: row.count(),
    }
}
