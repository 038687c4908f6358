-- Rollups on a hypertable: continuous aggregates. Each is computed from the one before, which costs a tenth
-- of a second pass over the samples. The collector refreshes them, and compresses chunks that no longer grow.
--
-- `samples_10s`, `samples_1min` and `samples_1h` have one row per series and bucket. `increase` is for
-- counters: the last value minus the first. A counter that fell to half or less has restarted; it is
-- counted from 0 then. Where it has since exceeded its earlier values, the part before the restart is unknown
-- and left out.
--
-- The mean of a bucket is `sum / parts`: of 10 s over its samples, of longer ones over the means of their
-- buckets of 10 s, so that a time with a shorter period weighs no more than another.
--
-- `rate_min` and `rate_max` are the extremes of the rates that windows of a counter had, per second; null without
-- windows. A window counts as the samples that it had.

-- The state of the rollups. Buckets that begin before `final_before` are not computed again: retention
-- removed their samples.
CREATE TABLE rollup (
    relation text PRIMARY KEY,
    final_before timestamptz
);
INSERT INTO rollup (relation) VALUES ('samples_10s'), ('samples_1min'), ('samples_1h');

CREATE MATERIALIZED VIEW samples_10s
WITH (timescaledb.continuous, timescaledb.materialized_only = false, timescaledb.chunk_interval = '6 hours') AS
SELECT series_id, time_bucket('10 s', time) AS time, CAST(sum(coalesce(count, 1)) AS int8) AS count,
       min(CASE WHEN sum IS NULL THEN value ELSE min END) AS min, max(CASE WHEN sum IS NULL THEN value ELSE max END) AS max,
       sum(coalesce(sum, value * coalesce(count, 1))) AS sum, CAST(sum(coalesce(count, 1)) AS int8) AS parts,
       first(value, time) AS first, last(value, time) AS last,
       CASE WHEN first(value, time) = min(value) AND last(value, time) = max(value) THEN last(value, time) - first(value, time)
            WHEN min(value) > max(value) / 2 THEN max(value) - first(value, time)
            WHEN last(value, time) = max(value) THEN last(value, time)
            ELSE max(value) - first(value, time) + last(value, time) END AS increase,
       min(CASE WHEN sum IS NULL THEN min END) AS rate_min, max(CASE WHEN sum IS NULL THEN max END) AS rate_max
FROM samples GROUP BY series_id, time_bucket('10 s', time) WITH NO DATA;
ALTER MATERIALIZED VIEW samples_10s SET (timescaledb.compress, timescaledb.compress_segmentby = '',
    timescaledb.compress_orderby = 'series_id,time');

CREATE MATERIALIZED VIEW samples_1min
WITH (timescaledb.continuous, timescaledb.materialized_only = false, timescaledb.chunk_interval = '1 day') AS
SELECT series_id, time_bucket('1 min', time) AS time, CAST(sum(count) AS int8) AS count, min(min) AS min, max(max) AS max,
       sum(sum / parts) AS sum, count(*) AS parts, first(first, time) AS first, last(last, time) AS last,
       CASE WHEN first(first, time) = min(min) AND last(last, time) = max(max) THEN last(last, time) - first(first, time)
            WHEN min(min) > max(max) / 2 THEN max(max) - first(first, time)
            WHEN last(last, time) = max(max) THEN last(last, time)
            ELSE max(max) - first(first, time) + last(last, time) END AS increase,
       min(rate_min) AS rate_min, max(rate_max) AS rate_max
FROM samples_10s GROUP BY series_id, time_bucket('1 min', time) WITH NO DATA;
ALTER MATERIALIZED VIEW samples_1min SET (timescaledb.compress, timescaledb.compress_segmentby = '',
    timescaledb.compress_orderby = 'series_id,time');

CREATE MATERIALIZED VIEW samples_1h
WITH (timescaledb.continuous, timescaledb.materialized_only = false, timescaledb.chunk_interval = '28 days') AS
SELECT series_id, time_bucket('1 h', time) AS time, CAST(sum(count) AS int8) AS count, min(min) AS min, max(max) AS max,
       sum(sum) AS sum, CAST(sum(parts) AS int8) AS parts, first(first, time) AS first, last(last, time) AS last,
       CASE WHEN first(first, time) = min(min) AND last(last, time) = max(max) THEN last(last, time) - first(first, time)
            WHEN min(min) > max(max) / 2 THEN max(max) - first(first, time)
            WHEN last(last, time) = max(max) THEN last(last, time)
            ELSE max(max) - first(first, time) + last(last, time) END AS increase,
       min(rate_min) AS rate_min, max(rate_max) AS rate_max
FROM samples_1min GROUP BY series_id, time_bucket('1 h', time) WITH NO DATA;
ALTER MATERIALIZED VIEW samples_1h SET (timescaledb.compress, timescaledb.compress_segmentby = '',
    timescaledb.compress_orderby = 'series_id,time');

-- Samples before `ordered_before` are in the order of their series, in batches of at most an hour. The
-- collector orders those of the last two days; the compression policy orders older chunks.
CREATE TABLE samples_order (
    ordered_before timestamptz NOT NULL
);
INSERT INTO samples_order VALUES (date_trunc('hour', now()) - interval '2 days');

-- The buckets that begin from `begin_at` to `end_at`, which is excluded, as on a server without continuous
-- aggregates.
CREATE FUNCTION samples_10s_between(begin_at timestamptz, end_at timestamptz) RETURNS SETOF samples_10s
LANGUAGE sql STABLE PARALLEL SAFE AS 'SELECT * FROM samples_10s WHERE time >= begin_at AND time < end_at';
CREATE FUNCTION samples_1min_between(begin_at timestamptz, end_at timestamptz) RETURNS SETOF samples_1min
LANGUAGE sql STABLE PARALLEL SAFE AS 'SELECT * FROM samples_1min WHERE time >= begin_at AND time < end_at';
CREATE FUNCTION samples_1h_between(begin_at timestamptz, end_at timestamptz) RETURNS SETOF samples_1h
LANGUAGE sql STABLE PARALLEL SAFE AS 'SELECT * FROM samples_1h WHERE time >= begin_at AND time < end_at';

-- What the views of a bucket per minute read. There are no parts here.
CREATE VIEW polymeter_minute_part AS
SELECT series_id, time, time AS part_time, time AS part, max, sum, parts AS weight, parts FROM samples_1min;
