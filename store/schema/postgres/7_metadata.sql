-- Version 7 for PostgreSQL and TimescaleDB: metadata without repetition. Jobs have the same list of series, and a change of plan
-- changes many metrics at once: such lists are stored once, and found by a digest of their members. `series`, `plan_change`
-- and `ledger` are views of the same columns as before.

DROP VIEW metrics;
DROP VIEW metrics_by_job;
DROP VIEW ledger_balance;

-- A block is the series of a job on a node, or of a node, that were registered together. Their ids follow each other from
-- `first_id`. Blocks do not overlap: the block of an id is the one with the greatest `first_id` that is not above it.
CREATE TABLE series_shape (
    shape_id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest text NOT NULL UNIQUE
);
CREATE TABLE series_shape_member (
    shape_id int8 NOT NULL,
    position int4 NOT NULL,
    metric text NOT NULL,
    labels jsonb NOT NULL
);
CREATE TABLE series_block (
    first_id int8 NOT NULL,
    shape_id int8 NOT NULL,
    job_key int8,
    node text NOT NULL,
    job_id text
);
-- The id of the next series. An id is never used again, also when its series was deleted. A transaction takes its ids last:
-- the row is locked until its end.
CREATE TABLE series_counter (
    next_id int8 NOT NULL
);

-- The series of version 6 keep their ids. Connections registered series at the same time: a block ends where the next id is of
-- another job or node, or of none.
ALTER TABLE series RENAME TO series_6;
CREATE UNLOGGED TABLE series_run AS
SELECT first_id, count(*)::int4 AS length, min(job_key) AS job_key, min(node) AS node, min(job_id) AS job_id,
       encode(sha256(convert_to(jsonb_agg(jsonb_build_array(metric, labels) ORDER BY series_id)::text, 'UTF8')), 'hex') AS digest
FROM (
    SELECT series_id, node, metric, job_key, job_id, labels, max(begin_id) OVER (ORDER BY series_id) AS first_id
    FROM (
        SELECT series_id, node, metric, job_key, job_id, labels,
               CASE WHEN lag(series_id) OVER by_id IS DISTINCT FROM series_id - 1 OR lag(node) OVER by_id <> node
                        OR lag(job_key) OVER by_id IS DISTINCT FROM job_key THEN series_id END AS begin_id
        FROM series_6 WINDOW by_id AS (ORDER BY series_id)
    ) AS marked
) AS numbered
GROUP BY first_id;
ANALYZE series_run;
INSERT INTO series_shape (digest) SELECT digest FROM series_run GROUP BY digest ORDER BY min(first_id);
ANALYZE series_shape;
INSERT INTO series_shape_member (shape_id, position, metric, labels)
SELECT shape_id, series_id - first_id, metric, labels
FROM (SELECT DISTINCT ON (digest) digest, first_id, length FROM series_run ORDER BY digest, first_id) AS example
JOIN series_shape USING (digest)
JOIN series_6 ON series_id >= first_id AND series_id < first_id + length
ORDER BY shape_id, series_id;
INSERT INTO series_block (first_id, shape_id, job_key, node, job_id)
SELECT first_id, shape_id, job_key, node, job_id FROM series_run JOIN series_shape USING (digest) ORDER BY first_id;
INSERT INTO series_counter SELECT coalesce(max(series_id), 0) + 1 FROM series_6;
DROP TABLE series_run;
DROP TABLE series_6;

ALTER TABLE series_shape_member
    ADD PRIMARY KEY (shape_id, position),
    ADD FOREIGN KEY (shape_id) REFERENCES series_shape ON DELETE CASCADE;
-- The labels of one series may be longer than an index entry, their digest is not.
CREATE UNIQUE INDEX series_shape_identity ON series_shape_member (shape_id, metric, md5(labels::text));
ALTER TABLE series_block
    ADD PRIMARY KEY (first_id),
    ADD FOREIGN KEY (shape_id) REFERENCES series_shape;
CREATE INDEX series_block_by_job ON series_block (job_key, node);
CREATE INDEX series_block_by_shape ON series_block (shape_id);

CREATE VIEW series AS
SELECT first_id + position AS series_id, node, metric, job_key, job_id, labels
FROM series_block JOIN series_shape_member USING (shape_id);

-- An event is the changes of plan of the same time, node, job and cause.
CREATE TABLE plan_change_set (
    set_id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest text NOT NULL UNIQUE
);
CREATE TABLE plan_change_set_member (
    set_id int8 NOT NULL,
    position int4 NOT NULL,
    metric text NOT NULL,
    old_period_us int8,
    new_period_us int8
);
CREATE TABLE plan_change_event (
    time timestamptz NOT NULL,
    until timestamptz,
    job_key int8,
    set_id int8 NOT NULL,
    node text NOT NULL,
    job_id text,
    cause text NOT NULL,
    actor text,
    reason text
);

CREATE UNLOGGED TABLE plan_change_run AS
SELECT time, until, job_key, node, job_id, cause, actor, reason, members,
       encode(sha256(convert_to(members::text, 'UTF8')), 'hex') AS digest
FROM (
    SELECT time, until, job_key, node, job_id, cause, actor, reason,
           jsonb_agg(jsonb_build_array(metric, old_period_us, new_period_us) ORDER BY metric, old_period_us, new_period_us) AS members
    FROM plan_change GROUP BY time, until, job_key, node, job_id, cause, actor, reason
) AS events;
ANALYZE plan_change_run;
INSERT INTO plan_change_set (digest) SELECT DISTINCT digest FROM plan_change_run;
ANALYZE plan_change_set;
INSERT INTO plan_change_set_member (set_id, position, metric, old_period_us, new_period_us)
SELECT set_id, number - 1, member ->> 0, (member ->> 1)::int8, (member ->> 2)::int8
FROM (SELECT DISTINCT ON (digest) digest, members FROM plan_change_run) AS example
JOIN plan_change_set USING (digest)
CROSS JOIN LATERAL jsonb_array_elements(members) WITH ORDINALITY AS list (member, number)
ORDER BY set_id, number;
INSERT INTO plan_change_event (time, until, job_key, set_id, node, job_id, cause, actor, reason)
SELECT time, until, job_key, set_id, node, job_id, cause, actor, reason
FROM plan_change_run JOIN plan_change_set USING (digest) ORDER BY time, node;
DROP TABLE plan_change_run;
DROP TABLE plan_change;

ALTER TABLE plan_change_set_member
    ADD PRIMARY KEY (set_id, position),
    ADD FOREIGN KEY (set_id) REFERENCES plan_change_set ON DELETE CASCADE;
ALTER TABLE plan_change_event ADD FOREIGN KEY (set_id) REFERENCES plan_change_set;
CREATE INDEX plan_change_event_by_node ON plan_change_event (node, time);
CREATE INDEX plan_change_event_by_job ON plan_change_event (job_key, time) WHERE job_key IS NOT NULL;
CREATE INDEX plan_change_event_by_set ON plan_change_event (set_id);

CREATE VIEW plan_change AS
SELECT time, node, job_key, job_id, metric, old_period_us, new_period_us, cause, actor, until, reason
FROM plan_change_event JOIN plan_change_set_member USING (set_id);

-- Lines refer to sessions and sources by numbers, and a count of 0 is null. A line without a session that counts
-- nothing was registered by a collector that ended before it stored anything: it is registered again.
-- A line that counts something is not lost with its session: the session is as its job says, or of an unknown node.
INSERT INTO session (session_id, node, agent_version, started, last_sequence, last_seen, ended, end_reason)
SELECT session_id,
       coalesce((SELECT min(node) FROM job_node WHERE job_node.job_key = line.job_key AND job_node.session_id = line.session_id),
                (SELECT min(node) FROM job_node WHERE job_node.job_key = line.job_key HAVING count(*) = 1), 'unknown'),
       'unknown', coalesce(begun, 'epoch'), 0, coalesce(finished, 'epoch'), coalesce(finished, 'epoch'), 'silent'
FROM (
    SELECT session_id, min(ledger.job_key) AS job_key, min(job.started) AS begun, max(coalesce(job.ended, job.started)) AS finished
    FROM ledger LEFT JOIN job ON job.job_key = ledger.job_key
    WHERE due + taken + late + missed + absent + dropped + skipped + rejected + quarantined + stored > 0
        AND NOT EXISTS (SELECT 1 FROM session WHERE session.session_id = ledger.session_id)
    GROUP BY session_id
) AS line;
ALTER TABLE session ADD COLUMN session_key int8 GENERATED ALWAYS AS IDENTITY;
CREATE UNIQUE INDEX session_by_key ON session (session_key);
CREATE TABLE ledger_source (
    source_id int4 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source text NOT NULL UNIQUE
);
CREATE TABLE ledger_line (
    ledger_id int8 GENERATED ALWAYS AS IDENTITY,
    session_key int8 NOT NULL,
    job_key int8,
    handle int8,
    due int8,
    taken int8,
    late int8,
    missed int8,
    absent int8,
    dropped int8,
    skipped int8,
    rejected int8,
    quarantined int8,
    stored int8,
    source_id int4 NOT NULL
);
INSERT INTO ledger_source (source) SELECT DISTINCT source FROM ledger;
ANALYZE ledger_source;
INSERT INTO ledger_line (ledger_id, session_key, job_key, handle, due, taken, late, missed, absent, dropped, skipped, rejected,
                         quarantined, stored, source_id) OVERRIDING SYSTEM VALUE
SELECT ledger_id, session_key, job_key, handle, nullif(due, 0), nullif(taken, 0), nullif(late, 0), nullif(missed, 0), nullif(absent, 0),
       nullif(dropped, 0), nullif(skipped, 0), nullif(rejected, 0), nullif(quarantined, 0), nullif(ledger.stored, 0), source_id
FROM ledger JOIN session USING (session_id) JOIN ledger_source USING (source) ORDER BY ledger_id;
SELECT setval(pg_get_serial_sequence('ledger_line', 'ledger_id'), max(ledger_id)) FROM ledger HAVING max(ledger_id) IS NOT NULL;
DROP TABLE ledger;
-- The counts of a running job change every ten seconds. There is room for other versions of a line in its page, so that the
-- indexes need not change.
ALTER TABLE ledger_line SET (fillfactor = 80);
ALTER TABLE ledger_line ADD PRIMARY KEY (ledger_id);
CREATE UNIQUE INDEX ledger_line_identity ON ledger_line (session_key, coalesce(handle, -1), coalesce(job_key, 0), source_id);
CREATE INDEX ledger_line_by_job ON ledger_line (job_key);

CREATE VIEW ledger AS
SELECT session_id, job_key, source, coalesce(due, 0) AS due, coalesce(taken, 0) AS taken, coalesce(late, 0) AS late,
       coalesce(missed, 0) AS missed, coalesce(absent, 0) AS absent, coalesce(dropped, 0) AS dropped, coalesce(skipped, 0) AS skipped,
       coalesce(rejected, 0) AS rejected, coalesce(quarantined, 0) AS quarantined, ledger_id, handle,
       coalesce(ledger_line.stored, 0) AS stored
FROM ledger_line JOIN session USING (session_key) JOIN ledger_source USING (source_id);

-- As in version 6.
CREATE VIEW ledger_balance AS
SELECT session_id, job_key, source, due + counted - taken AS due, counted AS taken, late, missed, absent, dropped, skipped,
       rejected, all_stored AS stored, quarantined,
       counted - dropped - skipped - rejected - quarantined - all_stored AS unknown, handle
FROM (
    SELECT session_id, job_key, source, coalesce(due, 0) AS due, coalesce(taken, 0) AS taken, coalesce(late, 0) AS late,
           coalesce(missed, 0) AS missed, coalesce(absent, 0) AS absent, coalesce(dropped, 0) AS dropped,
           coalesce(skipped, 0) AS skipped, coalesce(rejected, 0) AS rejected, coalesce(quarantined, 0) AS quarantined, handle,
           coalesce(ledger_line.stored, 0) + coalesce((pending ->> ledger_id::text)::int8, 0) AS all_stored
    FROM ledger_line JOIN session USING (session_key) JOIN ledger_source USING (source_id)
) AS line
CROSS JOIN LATERAL (SELECT greatest(taken, dropped + skipped + rejected + quarantined + all_stored) AS counted) AS sums;

-- A job's row changes when its facts and its end become known, which for short jobs is in the transaction after its creation. There
-- is room for another version of a row in its page: its four indexes need not change.
ALTER TABLE job SET (fillfactor = 50);
