-- Version 1 for PostgreSQL and TimescaleDB. The tables and columns are those of sqlite_1.sql; times are timestamptz.

CREATE TABLE node (
    node text PRIMARY KEY,
    first_seen timestamptz NOT NULL
);

CREATE TABLE metric (
    metric text PRIMARY KEY,
    unit text NOT NULL,
    kind text NOT NULL
);

CREATE TABLE job (
    job_key int4 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id text NOT NULL,
    cluster text,
    owner text,
    owner_uid int8,
    started timestamptz NOT NULL,
    ended timestamptz
);
CREATE INDEX job_by_id ON job (job_id);

CREATE TABLE job_node (
    job_key int4 NOT NULL REFERENCES job,
    node text NOT NULL,
    started timestamptz NOT NULL,
    ended timestamptz,
    PRIMARY KEY (job_key, node)
);
CREATE INDEX job_node_by_node ON job_node (node, started);

CREATE TABLE series (
    series_id int4 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    node text NOT NULL,
    metric text NOT NULL,
    job_key int4,
    job_id text,
    labels jsonb NOT NULL
);
-- The labels of one series may be longer than an index entry, their digest is not.
CREATE UNIQUE INDEX series_identity ON series (node, metric, coalesce(job_key, 0), md5(labels::text));
CREATE INDEX series_by_job ON series (job_key);

-- No key and no index that is unique: exactly-once comes from the session table, and a unique index costs the ingest.
CREATE TABLE samples (
    time timestamptz NOT NULL,
    series_id int4 NOT NULL,
    value float8 NOT NULL
) /* PARTITIONING */;

-- The session ledger: last_sequence is written in the transaction that stores the frames up to it.
CREATE TABLE session (
    session_id text PRIMARY KEY,
    node text NOT NULL,
    agent_version text NOT NULL,
    started timestamptz NOT NULL,
    last_sequence int8 NOT NULL,
    last_seen timestamptz NOT NULL
);

CREATE TABLE ledger (
    session_id text NOT NULL,
    job_key int4,
    source text NOT NULL,
    due int8 NOT NULL,
    taken int8 NOT NULL,
    late int8 NOT NULL,
    missed int8 NOT NULL,
    absent int8 NOT NULL,
    dropped int8 NOT NULL
);
CREATE UNIQUE INDEX ledger_identity ON ledger (session_id, coalesce(job_key, 0), source);
CREATE INDEX ledger_by_job ON ledger (job_key);

CREATE TABLE loss (
    time timestamptz NOT NULL,
    node text NOT NULL,
    session_id text NOT NULL,
    job_key int4,
    samples int8 NOT NULL,
    reason text NOT NULL,
    first_time timestamptz NOT NULL,
    last_time timestamptz NOT NULL
);
CREATE INDEX loss_by_node ON loss (node, time);

CREATE TABLE plan_change (
    time timestamptz NOT NULL,
    node text NOT NULL,
    job_key int4,
    job_id text,
    metric text NOT NULL,
    old_period_us int8,
    new_period_us int8,
    cause text NOT NULL,
    by_whom text,
    until timestamptz
);
CREATE INDEX plan_change_by_node ON plan_change (node, time);

CREATE TABLE mark (
    time timestamptz NOT NULL,
    node text NOT NULL,
    job_key int4,
    job_id text,
    name text NOT NULL,
    by_whom text,
    detail jsonb
);
CREATE INDEX mark_by_job ON mark (job_key, time);

-- What Kwollect's users and PostgREST expect.
CREATE VIEW metrics AS
SELECT samples.time AS timestamp, series.node AS device_id, series.metric AS metric_id, samples.value,
       CASE WHEN series.job_id IS NULL THEN series.labels
            ELSE series.labels || jsonb_build_object('job_id', series.job_id) END AS labels
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
    AND samples.time >= job_node.started AND samples.time <= coalesce(job_node.ended, 'infinity');
