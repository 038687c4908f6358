-- Version 1 for SQLite. The tables and columns are those of postgres_1.sql; times are nanoseconds since the epoch.

CREATE TABLE node (
    node text PRIMARY KEY,
    first_seen INTEGER NOT NULL
);

CREATE TABLE metric (
    metric text PRIMARY KEY,
    unit text NOT NULL,
    kind text NOT NULL
);

CREATE TABLE job (
    job_key INTEGER PRIMARY KEY,
    job_id text NOT NULL,
    cluster text,
    owner text,
    owner_uid INTEGER,
    started INTEGER NOT NULL,
    ended INTEGER
);
CREATE INDEX job_by_id ON job (job_id);

CREATE TABLE job_node (
    job_key INTEGER NOT NULL REFERENCES job,
    node text NOT NULL,
    started INTEGER NOT NULL,
    ended INTEGER,
    PRIMARY KEY (job_key, node)
);
CREATE INDEX job_node_by_node ON job_node (node, started);

CREATE TABLE series (
    series_id INTEGER PRIMARY KEY,
    node text NOT NULL,
    metric text NOT NULL,
    job_key INTEGER,
    job_id text,
    labels text NOT NULL
);
CREATE UNIQUE INDEX series_identity ON series (node, metric, coalesce(job_key, 0), labels);
CREATE INDEX series_by_job ON series (job_key);

-- No unique index: exactly-once comes from the session table.
CREATE TABLE samples (
    time INTEGER NOT NULL,
    series_id INTEGER NOT NULL,
    value REAL
);
CREATE INDEX samples_by_series ON samples (series_id, time);

-- The session ledger: last_sequence is written in the transaction that stores the frames up to it.
CREATE TABLE session (
    session_id text PRIMARY KEY,
    node text NOT NULL,
    agent_version text NOT NULL,
    started INTEGER NOT NULL,
    last_sequence INTEGER NOT NULL,
    last_seen INTEGER NOT NULL
);

CREATE TABLE ledger (
    session_id text NOT NULL,
    job_key INTEGER,
    source text NOT NULL,
    due INTEGER NOT NULL,
    taken INTEGER NOT NULL,
    late INTEGER NOT NULL,
    missed INTEGER NOT NULL,
    absent INTEGER NOT NULL,
    dropped INTEGER NOT NULL
);
CREATE UNIQUE INDEX ledger_identity ON ledger (session_id, coalesce(job_key, 0), source);
CREATE INDEX ledger_by_job ON ledger (job_key);

CREATE TABLE loss (
    time INTEGER NOT NULL,
    node text NOT NULL,
    session_id text NOT NULL,
    job_key INTEGER,
    samples INTEGER NOT NULL,
    reason text NOT NULL,
    first_time INTEGER NOT NULL,
    last_time INTEGER NOT NULL
);
CREATE INDEX loss_by_node ON loss (node, time);

CREATE TABLE plan_change (
    time INTEGER NOT NULL,
    node text NOT NULL,
    job_key INTEGER,
    job_id text,
    metric text NOT NULL,
    old_period_us INTEGER,
    new_period_us INTEGER,
    cause text NOT NULL,
    by_whom text,
    until INTEGER
);
CREATE INDEX plan_change_by_node ON plan_change (node, time);

CREATE TABLE mark (
    time INTEGER NOT NULL,
    node text NOT NULL,
    job_key INTEGER,
    job_id text,
    name text NOT NULL,
    by_whom text,
    detail text
);
CREATE INDEX mark_by_job ON mark (job_key, time);

-- What Kwollect's users and PostgREST expect.
CREATE VIEW metrics AS
SELECT samples.time AS timestamp, series.node AS device_id, series.metric AS metric_id, samples.value,
       CASE WHEN series.job_id IS NULL THEN series.labels
            ELSE json_set(series.labels, '$.job_id', series.job_id) END AS labels
FROM samples JOIN series USING (series_id);

-- A job's own series, and while it ran on a node the series of that node.
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
    AND samples.time >= job_node.started AND samples.time <= coalesce(job_node.ended, 9223372036854775807);
