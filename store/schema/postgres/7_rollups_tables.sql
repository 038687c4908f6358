-- Beside version 7 on a server without continuous aggregates: tables of the buckets that are computed, and views that add those
-- behind them. The collector computes buckets a few minutes after their end.

-- Buckets that begin before `claimed_before` are being computed: a transaction that writes older samples records them in `rollup_late`.
-- Those that begin before `computed_before` are in the table.
ALTER TABLE rollup
    ADD COLUMN claimed_before timestamptz NOT NULL DEFAULT '-infinity',
    ADD COLUMN computed_before timestamptz NOT NULL DEFAULT '-infinity';

-- The hours with samples that were written after their buckets were claimed.
CREATE TABLE rollup_late (
    time timestamptz NOT NULL
);

CREATE TABLE rollup_10s (
    series_id int8 NOT NULL,
    time timestamptz NOT NULL,
    count int8 NOT NULL,
    min float8 NOT NULL,
    max float8 NOT NULL,
    sum float8 NOT NULL,
    first float8 NOT NULL,
    last float8 NOT NULL,
    PRIMARY KEY (series_id, time)
) PARTITION BY RANGE (time);
CREATE INDEX rollup_10s_by_time ON rollup_10s USING brin (time);

CREATE TABLE rollup_1min (
    series_id int8 NOT NULL,
    time timestamptz NOT NULL,
    count int8 NOT NULL,
    min float8 NOT NULL,
    max float8 NOT NULL,
    sum float8 NOT NULL,
    first float8 NOT NULL,
    last float8 NOT NULL,
    PRIMARY KEY (series_id, time)
) PARTITION BY RANGE (time);
CREATE INDEX rollup_1min_by_time ON rollup_1min USING brin (time);

CREATE TABLE rollup_1h (
    series_id int8 NOT NULL,
    time timestamptz NOT NULL,
    count int8 NOT NULL,
    min float8 NOT NULL,
    max float8 NOT NULL,
    sum float8 NOT NULL,
    first float8 NOT NULL,
    last float8 NOT NULL,
    PRIMARY KEY (series_id, time)
);
CREATE INDEX rollup_1h_by_time ON rollup_1h USING brin (time);

-- Creates the partitions of `rollup_10s` (a day) and `rollup_1min` (a month) that contain `instant`, in UTC, unless they are there.
CREATE FUNCTION polymeter_create_rollup_partitions(instant timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    part record;
BEGIN
    FOR part IN
        SELECT parent, parent || '_' || to_char(begin_at, format) AS name, begin_at AT TIME ZONE 'UTC' AS begin_at,
               (begin_at + length) AT TIME ZONE 'UTC' AS end_at
        FROM (VALUES ('rollup_10s', 'day', 'YYYYMMDD', interval '1 day'),
                     ('rollup_1min', 'month', 'YYYYMM', interval '1 month')) AS kind (parent, unit, format, length)
        CROSS JOIN LATERAL (SELECT date_trunc(unit, instant AT TIME ZONE 'UTC') AS begin_at) AS begins
    LOOP
        IF to_regclass(part.name) IS NULL THEN
            EXECUTE format('CREATE TABLE %I (LIKE %I)', part.name, part.parent);
            EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', part.parent, part.name,
                           part.begin_at, part.end_at);
        END IF;
    END LOOP;
END
$$;

CREATE VIEW samples_10s AS
SELECT series_id, time, count, min, max, sum, first, last,
       CASE WHEN first = min AND last = max THEN last - first
            WHEN last = max THEN last
            ELSE max - first + last END AS increase
FROM (
    SELECT series_id, time, count, min, max, sum, first, last FROM rollup_10s
    WHERE time < (SELECT computed_before FROM rollup WHERE relation = 'samples_10s')
    UNION ALL
    SELECT series_id, date_bin('10 s', time, 'epoch') AS time, count(*) AS count, min(value) AS min, max(value) AS max, sum(value) AS sum,
           (min(ARRAY[extract(epoch FROM time)::float8, value]))[2] AS first,
           (max(ARRAY[extract(epoch FROM time)::float8, value]))[2] AS last
    FROM samples WHERE time >= (SELECT computed_before FROM rollup WHERE relation = 'samples_10s')
    GROUP BY series_id, date_bin('10 s', time, 'epoch')
) AS buckets;

CREATE VIEW samples_1min AS
SELECT series_id, time, count, min, max, sum, first, last,
       CASE WHEN first = min AND last = max THEN last - first
            WHEN last = max THEN last
            ELSE max - first + last END AS increase
FROM (
    SELECT series_id, time, count, min, max, sum, first, last FROM rollup_1min
    WHERE time < (SELECT computed_before FROM rollup WHERE relation = 'samples_1min')
    UNION ALL
    SELECT series_id, date_bin('1 min', time, 'epoch') AS time, sum(count)::int8, min(min), max(max), sum(sum),
           (min(ARRAY[extract(epoch FROM time)::float8, first]))[2],
           (max(ARRAY[extract(epoch FROM time)::float8, last]))[2]
    FROM samples_10s WHERE time >= (SELECT computed_before FROM rollup WHERE relation = 'samples_1min')
    GROUP BY series_id, date_bin('1 min', time, 'epoch')
) AS buckets;

CREATE VIEW samples_1h AS
SELECT series_id, time, count, min, max, sum, first, last,
       CASE WHEN first = min AND last = max THEN last - first
            WHEN last = max THEN last
            ELSE max - first + last END AS increase
FROM (
    SELECT series_id, time, count, min, max, sum, first, last FROM rollup_1h
    WHERE time < (SELECT computed_before FROM rollup WHERE relation = 'samples_1h')
    UNION ALL
    SELECT series_id, date_bin('1 h', time, 'epoch') AS time, sum(count)::int8, min(min), max(max), sum(sum),
           (min(ARRAY[extract(epoch FROM time)::float8, first]))[2],
           (max(ARRAY[extract(epoch FROM time)::float8, last]))[2]
    FROM samples_1min WHERE time >= (SELECT computed_before FROM rollup WHERE relation = 'samples_1h')
    GROUP BY series_id, date_bin('1 h', time, 'epoch')
) AS buckets;

-- The buckets that begin from `begin_at` to `end_at`, which is excluded: the same as the views have. The planner knows the
-- times of the samples behind the buckets, which the views hide from it, and leaves partitions out.
CREATE FUNCTION samples_10s_between(begin_at timestamptz, end_at timestamptz) RETURNS SETOF samples_10s
LANGUAGE sql STABLE PARALLEL SAFE AS $$
SELECT series_id, time, count, min, max, sum, first, last,
       CASE WHEN first = min AND last = max THEN last - first
            WHEN last = max THEN last
            ELSE max - first + last END AS increase
FROM (
    SELECT series_id, time, count, min, max, sum, first, last FROM rollup_10s
    WHERE time >= begin_at AND time < end_at
        AND time < (SELECT computed_before FROM rollup WHERE relation = 'samples_10s')
    UNION ALL
    SELECT series_id, date_bin('10 s', time, 'epoch') AS time, count(*) AS count, min(value) AS min, max(value) AS max, sum(value) AS sum,
           (min(ARRAY[extract(epoch FROM time)::float8, value]))[2] AS first,
           (max(ARRAY[extract(epoch FROM time)::float8, value]))[2] AS last
    -- The sum of a time without time zone and an interval is immutable: the planner computes it.
    FROM samples WHERE time >= begin_at AND time < (end_at AT TIME ZONE 'UTC' + interval '10 s') AT TIME ZONE 'UTC'
        AND time >= (SELECT computed_before FROM rollup WHERE relation = 'samples_10s')
        AND date_bin('10 s', time, 'epoch') >= begin_at AND date_bin('10 s', time, 'epoch') < end_at
    GROUP BY series_id, date_bin('10 s', time, 'epoch')
) AS buckets
$$;

CREATE FUNCTION samples_1min_between(begin_at timestamptz, end_at timestamptz) RETURNS SETOF samples_1min
LANGUAGE sql STABLE PARALLEL SAFE AS $$
SELECT series_id, time, count, min, max, sum, first, last,
       CASE WHEN first = min AND last = max THEN last - first
            WHEN last = max THEN last
            ELSE max - first + last END AS increase
FROM (
    SELECT series_id, time, count, min, max, sum, first, last FROM rollup_1min
    WHERE time >= begin_at AND time < end_at
        AND time < (SELECT computed_before FROM rollup WHERE relation = 'samples_1min')
    UNION ALL
    SELECT series_id, date_bin('1 min', time, 'epoch') AS time, sum(count)::int8, min(min), max(max), sum(sum),
           (min(ARRAY[extract(epoch FROM time)::float8, first]))[2],
           (max(ARRAY[extract(epoch FROM time)::float8, last]))[2]
    FROM samples_10s_between(begin_at, (end_at AT TIME ZONE 'UTC' + interval '1 min') AT TIME ZONE 'UTC') AS part
    WHERE time >= (SELECT computed_before FROM rollup WHERE relation = 'samples_1min')
        AND date_bin('1 min', time, 'epoch') >= begin_at AND date_bin('1 min', time, 'epoch') < end_at
    GROUP BY series_id, date_bin('1 min', time, 'epoch')
) AS buckets
$$;

CREATE FUNCTION samples_1h_between(begin_at timestamptz, end_at timestamptz) RETURNS SETOF samples_1h
LANGUAGE sql STABLE PARALLEL SAFE AS $$
SELECT series_id, time, count, min, max, sum, first, last,
       CASE WHEN first = min AND last = max THEN last - first
            WHEN last = max THEN last
            ELSE max - first + last END AS increase
FROM (
    SELECT series_id, time, count, min, max, sum, first, last FROM rollup_1h
    WHERE time >= begin_at AND time < end_at
        AND time < (SELECT computed_before FROM rollup WHERE relation = 'samples_1h')
    UNION ALL
    SELECT series_id, date_bin('1 h', time, 'epoch') AS time, sum(count)::int8, min(min), max(max), sum(sum),
           (min(ARRAY[extract(epoch FROM time)::float8, first]))[2],
           (max(ARRAY[extract(epoch FROM time)::float8, last]))[2]
    FROM samples_1min_between(begin_at, (end_at AT TIME ZONE 'UTC' + interval '1 h') AT TIME ZONE 'UTC') AS part
    WHERE time >= (SELECT computed_before FROM rollup WHERE relation = 'samples_1h')
        AND date_bin('1 h', time, 'epoch') >= begin_at AND date_bin('1 h', time, 'epoch') < end_at
    GROUP BY series_id, date_bin('1 h', time, 'epoch')
) AS buckets
$$;

-- The parts of which the buckets of `samples_1min` consist: buckets that are computed, those of 10 s, and samples. `part_time` is the
-- partitions' own time: a statement that bounds it reads no others, also if the bounds are known only when it runs.
CREATE VIEW polymeter_minute_part AS
SELECT series_id, time, time AS part_time, count, max, sum FROM rollup_1min
WHERE time < (SELECT computed_before FROM rollup WHERE relation = 'samples_1min')
UNION ALL
SELECT series_id, date_bin('1 min', time, 'epoch'), time, count, max, sum FROM rollup_10s
WHERE time >= (SELECT computed_before FROM rollup WHERE relation = 'samples_1min')
    AND time < (SELECT computed_before FROM rollup WHERE relation = 'samples_10s')
UNION ALL
SELECT series_id, date_bin('1 min', time, 'epoch'), time, 1, value, value FROM samples
WHERE time >= (SELECT computed_before FROM rollup WHERE relation = 'samples_10s');
