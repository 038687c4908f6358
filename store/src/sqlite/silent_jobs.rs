//! Jobs of silent sessions in a file that cannot be written: a reader sees them as ended, and nobody else.

use rusqlite::Connection;

use super::statement::DIALECT;

/// Hides the tables of jobs behind temporary copies, in memory, in which the jobs of sessions that have been
/// silent since `cutoff_us` have ended as they would be in the file.
pub(super) fn see_as_ended(connection: &Connection, cutoff_us: i64) -> rusqlite::Result<()> {
    let cutoff = (DIALECT.time)(cutoff_us);
    connection.execute_batch(&format!(
        "PRAGMA query_only = OFF;
         PRAGMA temp_store = MEMORY;
         CREATE TEMP TABLE job_node AS SELECT * FROM main.job_node;
         CREATE INDEX temp.job_node_by_job ON job_node (job_key);
         CREATE INDEX temp.job_node_by_session ON job_node (session_id);
         CREATE TEMP TABLE job AS SELECT * FROM main.job;
         CREATE UNIQUE INDEX temp.job_by_key ON job (job_key);
         CREATE INDEX temp.job_by_id ON job (job_id);
         UPDATE temp.job_node AS its SET lost = 1, ended = (
             SELECT max(its.started, coalesce(session.last_sample, session.last_seen)) FROM session
             WHERE session.session_id = its.session_id)
         WHERE its.ended IS NULL AND its.session_id IN (
             SELECT session.session_id FROM session WHERE session.last_seen < {cutoff});
         UPDATE temp.job AS whole SET ended = (
             SELECT max(its.ended) FROM temp.job_node AS its WHERE its.job_key = whole.job_key)
         WHERE whole.ended IS NULL AND NOT EXISTS (
             SELECT 1 FROM temp.job_node AS its WHERE its.job_key = whole.job_key AND its.ended IS NULL);
         PRAGMA query_only = ON;"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::{new_store, read_only};
    use super::*;

    #[test]
    fn only_this_reader_sees_the_jobs_of_silent_sessions_as_ended() {
        const SILENT: i64 = 50;
        let (directory, store) = new_store();
        drop(store);
        let path = directory.path().join("store.db");
        let insert = "
             INSERT INTO session
                 (session_id, node, agent_version, started, last_sequence, last_seen, last_sample)
                 VALUES ('silent', 'n1', '1', 1000, 1, 40000, 30000),
                        ('live', 'n2', '1', 1000, 1, 60000, 55000);
             INSERT INTO job (job_key, job_id, started, ended)
                 VALUES (1, 'a', 2000, NULL), (2, 'b', 3000, NULL),
                 (3, 'c', 4000, NULL), (4, 'd', 5000, 6000), (5, 'e', 35000, NULL);
             INSERT INTO job_node (job_key, node, started, ended, session_id, handle)
                 VALUES (1, 'n1', 2000, NULL, 'silent', 1), (2, 'n2', 3000, NULL, 'live', 1),
                        (3, 'n1', 4000, NULL, 'silent', 2), (3, 'n2', 4000, NULL, 'live', 2),
                        (4, 'n1', 5000, 6000, 'silent', 3), (5, 'n1', 35000, NULL, 'silent', 4);";
        Connection::open(&path).unwrap().execute_batch(insert).unwrap();
        let ends = |connection: &Connection| -> Vec<(i64, Option<i64>, Option<i64>)> {
            let select =
                "SELECT job_key, ended, (SELECT sum(lost) FROM job_node WHERE job_node.job_key = job.job_key)
                          FROM job ORDER BY job_key";
            let mut statement = connection.prepare(select).unwrap();
            let rows = statement.query_map((), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
            rows.map(Result::unwrap).collect()
        };
        let stored = [(1, None), (2, None), (3, None), (4, Some(6_000)), (5, None)];
        let stored = stored.map(|(job, ended)| (job, ended, Some(0)));
        let reader = read_only::open(&path).unwrap();
        assert_eq!(ends(&reader), stored);
        see_as_ended(&reader, SILENT).unwrap();
        let seen =
            [(1, Some(30_000), 1), (2, None, 0), (3, None, 1), (4, Some(6_000), 0), (5, Some(35_000), 1)];
        assert_eq!(ends(&reader), seen.map(|(job, ended, lost)| (job, ended, Some(lost))));
        assert_eq!(ends(&read_only::open(&path).unwrap()), stored);
        assert!(reader.execute("UPDATE main.job SET ended = 1", ()).is_err());
    }
}
