-- Version 5 for PostgreSQL and TimescaleDB: keys of 64 bits; the ledger counts what is stored, sessions and jobs end also when
-- their agents do not say so. Mirrors sqlite_5.sql.

DROP VIEW ledger_balance;
DROP VIEW metrics_by_job;
DROP VIEW metrics;

-- The sequences of identity columns take the new type of their columns.
ALTER TABLE job ALTER COLUMN job_key TYPE int8;
ALTER TABLE job_node ALTER COLUMN job_key TYPE int8;
ALTER TABLE series ALTER COLUMN job_key TYPE int8, ALTER COLUMN series_id TYPE int8;
ALTER TABLE loss ALTER COLUMN job_key TYPE int8;
ALTER TABLE plan_change ALTER COLUMN job_key TYPE int8;
ALTER TABLE mark ALTER COLUMN job_key TYPE int8;
ALTER TABLE samples_apart ALTER COLUMN series_id TYPE int8;
/* WIDEN SAMPLES */

-- A line is one source of one handle of a session. A job whose cgroups go and return has another handle each time, whose
-- tallies begin at 0. `handle` is null for the node's own sources, and for jobs of version 4 that nothing was heard of since.
-- `stored` counts the rows of `samples`, together with `session.pending`, in the transaction that writes them.
DROP INDEX ledger_identity;
ALTER TABLE ledger
    ALTER COLUMN job_key TYPE int8,
    ALTER COLUMN due SET DEFAULT 0,
    ALTER COLUMN taken SET DEFAULT 0,
    ALTER COLUMN late SET DEFAULT 0,
    ALTER COLUMN missed SET DEFAULT 0,
    ALTER COLUMN absent SET DEFAULT 0,
    ALTER COLUMN dropped SET DEFAULT 0,
    ADD COLUMN ledger_id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ADD COLUMN handle int8,
    ADD COLUMN stored int8 NOT NULL DEFAULT 0;
UPDATE ledger SET stored = greatest(taken - dropped - skipped - rejected - apart, 0);
CREATE UNIQUE INDEX ledger_identity ON ledger (session_id, coalesce(handle, -1), coalesce(job_key, 0), source);

-- `pending`: samples that are stored and not yet counted in `ledger`, by ledger_id.
-- `ended` is null while the agent may still send. `end_reason`: stopped (it said so), superseded (another session of the node
-- began later), silent (nothing was heard for long). A session that sends again is open again.
ALTER TABLE session
    ADD COLUMN pending jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN last_sample timestamptz,
    ADD COLUMN ended timestamptz,
    ADD COLUMN end_reason text;
CREATE INDEX session_open ON session (node) WHERE ended IS NULL;
CREATE INDEX session_by_node ON session (node, started);

-- The session and the handle that follow the job on the node. `lost`: it has ended because its agent did, at a time that is
-- not known.
ALTER TABLE job_node
    ADD COLUMN session_id text,
    ADD COLUMN handle int8,
    ADD COLUMN lost boolean NOT NULL DEFAULT false;
CREATE INDEX job_node_open ON job_node (session_id) WHERE ended IS NULL;
CREATE INDEX job_node_lost ON job_node (session_id) WHERE lost;

-- A loss of which the number is not known has 0 samples and the reason `unknown`: of an agent that was killed.
CREATE INDEX loss_unknown ON loss (session_id) WHERE reason = 'unknown';

-- due = missed + absent + dropped + skipped + rejected + apart + stored + unknown. Where samples came after the newest tally,
-- they were due and taken. `unknown` were taken, and nothing says what became of them.
CREATE VIEW ledger_balance AS
SELECT session_id, job_key, source, due + counted - taken AS due, counted AS taken, late, missed, absent, dropped, skipped,
       rejected, all_stored AS stored, apart, counted - dropped - skipped - rejected - apart - all_stored AS unknown, handle
FROM ledger LEFT JOIN session USING (session_id)
CROSS JOIN LATERAL (SELECT ledger.stored + coalesce((session.pending ->> ledger_id::text)::int8, 0) AS all_stored) AS counts
CROSS JOIN LATERAL (SELECT greatest(taken, dropped + skipped + rejected + apart + all_stored) AS counted) AS sums;

-- What Kwollect's users and PostgREST expect, as in version 1.
CREATE VIEW metrics AS
SELECT samples.time AS timestamp, series.node AS device_id, series.metric AS metric_id, samples.value,
       CASE WHEN series.job_id IS NULL THEN series.labels
            ELSE series.labels || jsonb_build_object('job_id', series.job_id) END AS labels
FROM samples JOIN series USING (series_id);

CREATE VIEW metrics_by_job AS
SELECT job.job_id, samples.time AS timestamp, series.node AS device_id, series.metric AS metric_id, samples.value,
       series.labels
FROM job JOIN series USING (job_key) JOIN samples USING (series_id)
UNION ALL
SELECT job.job_id, samples.time, series.node, series.metric, samples.value, series.labels
FROM job
JOIN job_node USING (job_key)
JOIN series ON series.node = job_node.node AND series.job_key IS NULL
JOIN samples ON samples.series_id = series.series_id
    AND samples.time >= job_node.started AND samples.time <= coalesce(job_node.ended, 'infinity');
