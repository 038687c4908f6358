//! Checks of the database against the agents' own counters, the data left in their spools, and the kernel's
//! values.

use super::fixture::{METRICS, OF_DEVICE, Results};
use polymeter_e2e::reference::assert_between;
use polymeter_e2e::stored;

impl Results {
    fn assert_no_rows(&mut self, what: &str, sql: &str) {
        let found = self.server_env.server().query(sql);
        assert!(found.is_empty(), "{what}:\n{found}");
    }

    fn number(&mut self, sql: &str) -> u64 {
        let number = self.server_env.server().query(sql);
        number.parse().unwrap_or_else(|error| panic!("{sql}: {number}: {error}"))
    }
}

fn sources() -> String {
    let sources = METRICS.map(|(metric, source, _)| (metric, source)).into_iter().chain(OF_DEVICE);
    let rows: Vec<_> = sources.map(|(metric, source)| format!("('{metric}', '{source}')")).collect();
    format!("of (metric, source) AS (VALUES {})", rows.join(", "))
}

fn list<'a>(words: impl IntoIterator<Item = &'a String>) -> String {
    let words: Vec<_> = words.into_iter().map(|word| format!("'{word}'")).collect();
    words.join(", ")
}

pub(crate) fn assert_no_duplicates(results: &mut Results) {
    let twice =
        "SELECT series_id, time, count(*) FROM samples GROUP BY series_id, time HAVING count(*) > 1 LIMIT 20";
    results.assert_no_rows("stored twice", twice);
    let jobs = format!("SELECT count(*) FROM job WHERE job_id = '{}'", results.job);
    assert_eq!(results.number(&jobs), 1);
}

/// Checks that each line of each session's ledger adds up. No sample was dropped or rejected: every outbox
/// had room, also that of the agent without space for its spool. The agents' own counters agree, and an agent
/// that was stopped has missed samples. The unknown end of a session is recorded, for the job and for the
/// node, exactly if the session was killed.
pub(crate) fn assert_ledger_balances(results: &mut Results) {
    let wrong = "SELECT * FROM ledger_balance
        WHERE due <> taken + missed + absent OR stored <> taken OR dropped + skipped + rejected + quarantined + unknown <> 0";
    results.assert_no_rows("the ledger does not add up", wrong);
    let killed =
        list(results.ended_sessions.iter().filter(|(_, left)| left.killed).map(|(session, _)| session));
    let gaps = format!(
        "SELECT * FROM loss WHERE reason <> 'unknown' OR samples <> 0 OR session_id NOT IN ({killed}) OR last_time <= first_time"
    );
    results.assert_no_rows("lost", &gaps);
    let wrong_ends = format!(
        "SELECT session_id, end_reason, count(loss.time) FILTER (WHERE job_id = '{}') AS of_job,
                count(loss.time) FILTER (WHERE job_key IS NULL) AS of_node
         FROM session LEFT JOIN loss USING (session_id, node) LEFT JOIN job USING (job_key)
         GROUP BY 1, 2
         HAVING (session_id IN ({killed})) <> (
                    coalesce(end_reason, '') = 'superseded' AND count(loss.time) FILTER (WHERE job_id = '{}') = 1
                    AND count(loss.time) FILTER (WHERE job_key IS NULL) = 1)
             OR session_id NOT IN ({killed}) AND end_reason IS DISTINCT FROM 'stopped'",
        results.job, results.job
    );
    results.assert_no_rows("the end of a session is recorded wrongly", &wrong_ends);
    // The node was sampled further after the counters were read.
    for (node, due) in results.due.clone() {
        let of_node = format!(
            "SELECT sum(due) FROM ledger_balance JOIN session USING (session_id) WHERE node = '{node}'"
        );
        let in_ledger = results.number(&of_node);
        assert!(
            in_ledger >= due,
            "{node} counted {due} samples that were due, and its ledger has {in_ledger}"
        );
    }
    // A session that was killed later may not have reported what it missed.
    for session in results.stopped.clone() {
        let is_killed = results.ended_sessions.get(&session).is_some_and(|left| left.killed);
        let missed = format!("SELECT sum(missed) FROM ledger_balance WHERE session_id = '{session}'");
        assert!(is_killed || results.number(&missed) > 0, "{session} was stopped and has missed nothing");
    }
}

/// Checks that the stored samples agree with the ledger: of each node, of each job, and of each source of the
/// node and of the permanent job. This includes killed sessions, whose last tallies are missing.
pub(crate) fn assert_stored_matches_ledger(results: &mut Results) {
    let is_the_job = format!("coalesce(job.job_id, '{0}') = '{0}'", results.job);
    let by_source = compare("node, source", "JOIN of USING (metric)", &is_the_job);
    results.assert_no_rows("not what the ledger says of a source", &by_source);
    let by_job = compare("node, coalesce(job_key, 0)", "", "true");
    results.assert_no_rows("not what the ledger says of a job", &by_job);
    let by_session = "SELECT session_id, node, session.stored, sum(ledger_balance.stored) AS expected
         FROM session LEFT JOIN ledger_balance USING (session_id) GROUP BY 1, 2, 3
         HAVING session.stored IS DISTINCT FROM coalesce(sum(ledger_balance.stored), 0)";
    results.assert_no_rows("sessions and ledger disagree", by_session);
    let by_node = "SELECT node, counted, stored FROM
             (SELECT node, count(*) AS counted FROM samples JOIN series USING (series_id) GROUP BY node) AS stored_rows
         FULL JOIN (SELECT node, sum(stored) AS stored FROM session GROUP BY node) AS session USING (node)
         WHERE counted IS DISTINCT FROM stored";
    results.assert_no_rows("sessions and samples disagree", by_node);
    let rows = results.number("SELECT count(*) FROM samples");
    assert!(rows > 10_000, "only {rows} samples");
}

fn compare(columns: &str, join: &str, which: &str) -> String {
    format!(
            "WITH {}, ledger AS (
                 SELECT {columns}, sum(ledger_balance.stored) AS expected FROM ledger_balance JOIN session USING (session_id)
                 LEFT JOIN job USING (job_key) WHERE {which} GROUP BY {columns}
             ), stored_rows AS (
                 SELECT {columns}, count(*) AS counted FROM samples JOIN series USING (series_id) {join}
                 LEFT JOIN job USING (job_key) WHERE {which} GROUP BY {columns}
             )
             SELECT * FROM ledger NATURAL FULL JOIN stored_rows WHERE coalesce(counted, 0) IS DISTINCT FROM expected",
            sources()
        )
}

/// Checks that between the first and the last sample of each session every deadline was met or counted as
/// missed: a killed session loses its end, never a frame in between. A missed deadline is reported in the
/// frame in which it is noticed, so that this holds without the last tallies, too. A frame spans five ticks;
/// the first and the last sample may be off the grid and hide at most two.
pub(crate) fn assert_no_gaps(results: &mut Results) {
    let gaps = format!(
        "WITH {}, run AS (
             SELECT session_id, node, started, lead(started, 1, 'infinity') OVER (PARTITION BY node ORDER BY started) AS next
             FROM session
         ), span AS (
             SELECT session_id, source, count(*) AS counted,
                 floor(extract(epoch FROM max(time)) * 100) - floor(extract(epoch FROM min(time)) * 100) AS deadlines
             FROM run JOIN series USING (node) JOIN of USING (metric) JOIN samples USING (series_id)
             WHERE job_id = '{}' AND time >= started AND time < next AND source IN ('v1/memory.stat', 'v1/memory.usage_in_bytes', 'v1/pids.current')
             GROUP BY session_id, source
         )
         SELECT span.*, missed, absent
         FROM span LEFT JOIN (SELECT ledger.* FROM ledger JOIN job USING (job_key) WHERE job_id = '{}') AS reported
             USING (session_id, source)
         WHERE counted + coalesce(missed + absent, 0) < deadlines",
        sources(),
        results.job,
        results.job
    );
    results.assert_no_rows("deadlines without a sample", &gaps);
}

/// Checks that the store has all acknowledged frames of each ended session, and exactly those that were in
/// its spool besides. A killed session loses only the frames that were in memory alone: at most 5 s of
/// samples while the collector was away, by the design of the spool. A session that was terminated loses
/// none, and its ledger agrees.
pub(crate) fn assert_ended_sessions_are_stored(results: &mut Results) {
    assert!(
        !results.ended_sessions.is_empty() && results.ended_sessions.len().is_multiple_of(5),
        "{:?}",
        results.ended_sessions
    );
    for (session, left) in std::mem::take(&mut results.ended_sessions) {
        let sql = format!("SELECT last_sequence, stored FROM session WHERE session_id = '{session}'");
        let row = results.server_env.server().query(&sql);
        let (last, stored) = row.split_once('|').unwrap_or_else(|| panic!("nothing of {session}, {left:?}"));
        let stored_rows: (u64, u64) = (last.parse().unwrap(), stored.parse().unwrap());
        assert!(stored_rows.0 >= left.acknowledged, "{session}: {stored_rows:?}, {left:?}");
        if let Some(kept) = left.kept {
            assert_eq!(stored_rows, kept, "{session}: {left:?}");
        }
    }
}

/// Checks that a device that lies has values, though it is slow and not every agent lives long enough to find
/// them, and none that it could not have measured.
pub(crate) fn assert_device_has_only_its_values(results: &mut Results) {
    let of_device = "samples JOIN series USING (series_id) WHERE metric LIKE 'device.liar.%'";
    let rows = results.number(&format!("SELECT count(*) FROM {of_device}"));
    assert!(rows > 100, "only {rows} samples");
    let wrong = format!(
        "SELECT metric, labels, time, value FROM {of_device}
         AND (value IS NULL OR value NOT BETWEEN 0 AND 1e12
             OR time < (SELECT min(started) FROM session) OR time > now() + interval '1 minute') LIMIT 20"
    );
    results.assert_no_rows("no values of the device", &wrong);
}

pub(crate) fn assert_values_match_the_kernel(results: &Results) {
    let mut reader = results.server_env.reader();
    let job = stored::job(&mut reader, &results.job).unwrap();
    for node in &results.nodes {
        assert_between(&stored::samples_on(&mut reader, job.job_key, node), &results.snapshots);
    }
}
