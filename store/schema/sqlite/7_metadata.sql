-- Version 7 for SQLite: metadata without repetition, as in PostgreSQL. `polymeter_digest` is a function of the collector.

DROP VIEW metrics;
DROP VIEW metrics_by_job;
DROP VIEW ledger_balance;

CREATE TABLE series_shape (
    shape_id INTEGER PRIMARY KEY,
    digest text NOT NULL UNIQUE
);
CREATE TABLE series_shape_member (
    shape_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    metric text NOT NULL,
    labels text NOT NULL,
    PRIMARY KEY (shape_id, position)
) WITHOUT ROWID;
CREATE UNIQUE INDEX series_shape_identity ON series_shape_member (shape_id, metric, labels);
CREATE TABLE series_block (
    first_id INTEGER PRIMARY KEY,
    shape_id INTEGER NOT NULL,
    job_key INTEGER,
    node text NOT NULL,
    job_id text
);
CREATE TABLE series_counter (
    next_id INTEGER NOT NULL
);

ALTER TABLE series RENAME TO series_6;
CREATE TABLE series_run (
    first_id INTEGER PRIMARY KEY,
    length INTEGER,
    job_key INTEGER,
    node text,
    job_id text,
    digest text
);
INSERT INTO series_run
SELECT first_id, count(*), min(job_key), min(node), min(job_id),
       polymeter_digest(json_group_array(json_array(metric, labels) ORDER BY series_id))
FROM (
    SELECT series_id, node, metric, job_key, job_id, labels, max(begin_id) OVER (ORDER BY series_id) AS first_id
    FROM (
        SELECT series_id, node, metric, job_key, job_id, labels,
               CASE WHEN lag(series_id) OVER by_id IS NOT series_id - 1 OR lag(node) OVER by_id IS NOT node
                        OR lag(job_key) OVER by_id IS NOT job_key THEN series_id END AS begin_id
        FROM series_6 WINDOW by_id AS (ORDER BY series_id)
    )
)
GROUP BY first_id;
INSERT INTO series_shape (digest) SELECT digest FROM series_run GROUP BY digest ORDER BY min(first_id);
INSERT INTO series_shape_member (shape_id, position, metric, labels)
SELECT shape_id, series_id - first_id, metric, labels
FROM (SELECT digest, min(first_id) AS first_id, length FROM series_run GROUP BY digest) AS example
CROSS JOIN series_shape ON series_shape.digest = example.digest
CROSS JOIN series_6 ON series_id >= first_id AND series_id < first_id + length;
INSERT INTO series_block (first_id, shape_id, job_key, node, job_id)
SELECT first_id, shape_id, job_key, node, job_id FROM series_run CROSS JOIN series_shape USING (digest);
INSERT INTO series_counter SELECT coalesce(max(series_id), 0) + 1 FROM series_6;
DROP TABLE series_run;
DROP TABLE series_6;
CREATE INDEX series_block_by_job ON series_block (job_key, node);
CREATE INDEX series_block_by_shape ON series_block (shape_id);

CREATE VIEW series AS
SELECT first_id + position AS series_id, node, metric, job_key, job_id, labels
FROM series_block JOIN series_shape_member ON series_shape_member.shape_id = series_block.shape_id;

CREATE TABLE plan_change_set (
    set_id INTEGER PRIMARY KEY,
    digest text NOT NULL UNIQUE
);
CREATE TABLE plan_change_set_member (
    set_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    metric text NOT NULL,
    old_period_us INTEGER,
    new_period_us INTEGER,
    PRIMARY KEY (set_id, position)
) WITHOUT ROWID;
CREATE TABLE plan_change_event (
    time INTEGER NOT NULL,
    until INTEGER,
    job_key INTEGER,
    set_id INTEGER NOT NULL,
    node text NOT NULL,
    job_id text,
    cause text NOT NULL,
    actor text,
    reason text
);
CREATE TABLE plan_change_run AS
SELECT time, until, job_key, node, job_id, cause, actor, reason,
       json_group_array(json_array(metric, old_period_us, new_period_us) ORDER BY metric, old_period_us, new_period_us) AS members
FROM plan_change GROUP BY time, until, job_key, node, job_id, cause, actor, reason;
INSERT INTO plan_change_set (digest) SELECT DISTINCT polymeter_digest(members) FROM plan_change_run;
INSERT INTO plan_change_set_member (set_id, position, metric, old_period_us, new_period_us)
SELECT set_id, list.key, list.value ->> 0, list.value ->> 1, list.value ->> 2
FROM (SELECT members FROM plan_change_run GROUP BY members) AS example
CROSS JOIN plan_change_set ON digest = polymeter_digest(members)
CROSS JOIN json_each(members) AS list;
INSERT INTO plan_change_event (time, until, job_key, set_id, node, job_id, cause, actor, reason)
SELECT time, until, job_key, set_id, node, job_id, cause, actor, reason
FROM plan_change_run CROSS JOIN plan_change_set ON digest = polymeter_digest(members)
ORDER BY time, node;
DROP TABLE plan_change_run;
DROP TABLE plan_change;
CREATE INDEX plan_change_event_by_node ON plan_change_event (node, time);
CREATE INDEX plan_change_event_by_job ON plan_change_event (job_key, time) WHERE job_key IS NOT NULL;
CREATE INDEX plan_change_event_by_set ON plan_change_event (set_id);

CREATE VIEW plan_change AS
SELECT time, node, job_key, job_id, metric, old_period_us, new_period_us, cause, actor, until, reason
FROM plan_change_event JOIN plan_change_set_member ON plan_change_set_member.set_id = plan_change_event.set_id;

-- A line that counts something is not lost with its session: the session is as its job says, or of an unknown node.
INSERT INTO session (session_id, node, agent_version, started, last_sequence, last_seen, ended, end_reason)
SELECT session_id,
       coalesce((SELECT min(node) FROM job_node WHERE job_node.job_key = line.job_key AND job_node.session_id = line.session_id),
                (SELECT min(node) FROM job_node WHERE job_node.job_key = line.job_key HAVING count(*) = 1), 'unknown'),
       'unknown', coalesce(begun, 0), 0, coalesce(finished, 0), coalesce(finished, 0), 'silent'
FROM (
    SELECT session_id, min(ledger.job_key) AS job_key, min(job.started) AS begun, max(coalesce(job.ended, job.started)) AS finished
    FROM ledger LEFT JOIN job ON job.job_key = ledger.job_key
    WHERE due + taken + late + missed + absent + dropped + skipped + rejected + quarantined + stored > 0
        AND NOT EXISTS (SELECT 1 FROM session WHERE session.session_id = ledger.session_id)
    GROUP BY session_id
) AS line;
CREATE TABLE session_7 (
    session_key INTEGER PRIMARY KEY,
    session_id text NOT NULL UNIQUE,
    node text NOT NULL,
    agent_version text NOT NULL,
    started INTEGER NOT NULL,
    last_sequence INTEGER NOT NULL,
    last_seen INTEGER NOT NULL,
    stored INTEGER NOT NULL DEFAULT 0,
    last_sample INTEGER,
    ended INTEGER,
    end_reason text,
    pending text NOT NULL DEFAULT '{}'
);
INSERT INTO session_7 (session_id, node, agent_version, started, last_sequence, last_seen, stored, last_sample, ended, end_reason, pending)
SELECT session_id, node, agent_version, started, last_sequence, last_seen, stored, last_sample, ended, end_reason, pending FROM session;
DROP TABLE session;
ALTER TABLE session_7 RENAME TO session;
CREATE INDEX session_open ON session (node) WHERE ended IS NULL;
CREATE INDEX session_by_node ON session (node, started);

CREATE TABLE ledger_source (
    source_id INTEGER PRIMARY KEY,
    source text NOT NULL UNIQUE
);
CREATE TABLE ledger_line (
    ledger_id INTEGER PRIMARY KEY,
    session_key INTEGER NOT NULL,
    job_key INTEGER,
    handle INTEGER,
    due INTEGER,
    taken INTEGER,
    late INTEGER,
    missed INTEGER,
    absent INTEGER,
    dropped INTEGER,
    skipped INTEGER,
    rejected INTEGER,
    quarantined INTEGER,
    stored INTEGER,
    source_id INTEGER NOT NULL
);
INSERT INTO ledger_source (source) SELECT DISTINCT source FROM ledger;
INSERT INTO ledger_line (ledger_id, session_key, job_key, handle, due, taken, late, missed, absent, dropped, skipped, rejected,
                         quarantined, stored, source_id)
SELECT ledger_id, session_key, job_key, handle, nullif(due, 0), nullif(taken, 0), nullif(late, 0), nullif(missed, 0), nullif(absent, 0),
       nullif(dropped, 0), nullif(skipped, 0), nullif(rejected, 0), nullif(quarantined, 0), nullif(ledger.stored, 0), source_id
FROM ledger CROSS JOIN session USING (session_id) CROSS JOIN ledger_source USING (source) ORDER BY ledger_id;
DROP TABLE ledger;
CREATE UNIQUE INDEX ledger_line_identity ON ledger_line (session_key, coalesce(handle, -1), coalesce(job_key, 0), source_id);
CREATE INDEX ledger_line_by_job ON ledger_line (job_key);

CREATE VIEW ledger AS
SELECT session_id, job_key, source, coalesce(due, 0) AS due, coalesce(taken, 0) AS taken, coalesce(late, 0) AS late,
       coalesce(missed, 0) AS missed, coalesce(absent, 0) AS absent, coalesce(dropped, 0) AS dropped, coalesce(skipped, 0) AS skipped,
       coalesce(rejected, 0) AS rejected, coalesce(quarantined, 0) AS quarantined, ledger_id, handle,
       coalesce(ledger_line.stored, 0) AS stored
FROM ledger_line
JOIN session ON session.session_key = ledger_line.session_key
JOIN ledger_source ON ledger_source.source_id = ledger_line.source_id;

-- As in version 6.
CREATE VIEW ledger_balance AS
SELECT session_id, job_key, source, due + counted - taken AS due, counted AS taken, late, missed, absent, dropped, skipped,
       rejected, stored, quarantined, counted - dropped - skipped - rejected - quarantined - stored AS unknown, handle
FROM (SELECT ledger.*, max(taken, dropped + skipped + rejected + quarantined + stored) AS counted FROM ledger);

-- As in version 1.
CREATE VIEW metrics AS
SELECT samples.time AS timestamp, series.node AS device_id, series.metric AS metric_id, samples.value,
       CASE WHEN series.job_id IS NULL THEN series.labels
            ELSE json_set(series.labels, '$.job_id', series.job_id) END AS labels
FROM samples JOIN series ON series.series_id = samples.series_id;

