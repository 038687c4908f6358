-- Rollups on a server without continuous aggregates: tables of the buckets that are computed, and views that
-- add those behind them. The collector computes buckets a few minutes after their end.
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
-- removed their samples. Buckets that begin before `claimed_before` are being computed: a transaction that
-- writes older samples records them in `rollup_late`. Those that begin before `computed_before` are in the
-- table.
CREATE TABLE rollup (
    relation text PRIMARY KEY,
    final_before timestamptz,
    claimed_before timestamptz NOT NULL DEFAULT '-infinity',
    computed_before timestamptz NOT NULL DEFAULT '-infinity'
);
INSERT INTO rollup (relation) VALUES ('samples_10s'), ('samples_1min'), ('samples_1h');

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
    rate_min float8,
    rate_max float8,
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
    parts int8 NOT NULL,
    first float8 NOT NULL,
    last float8 NOT NULL,
    rate_min float8,
    rate_max float8,
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
    parts int8 NOT NULL,
    first float8 NOT NULL,
    last float8 NOT NULL,
    rate_min float8,
    rate_max float8,
    PRIMARY KEY (series_id, time)
);
CREATE INDEX rollup_1h_by_time ON rollup_1h USING brin (time);

-- Creates the partitions of `rollup_10s` (a day) and `rollup_1min` (a month) that contain `instant`, in UTC,
-- unless they are there.
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

-- The relations of buckets: those that are computed, and behind them those of the finer relation. A function
-- `samples_..._between` returns the buckets that begin from `begin_at` to `end_at`, which is excluded: the
-- same as the view has. The planner knows the times of the samples behind the buckets, which the views hide
-- from it, and leaves partitions out.
DO $do$
DECLARE
    template CONSTANT text := $$
SELECT series_id, time, count, min, max, sum, parts, first, last,
       CASE WHEN first = min AND last = max THEN last - first
            WHEN min > max / 2 THEN max - first
            WHEN last = max THEN last
            ELSE max - first + last END AS increase, rate_min, rate_max
FROM (
    SELECT series_id, time, count, min, max, sum, PARTS AS parts, first, last, rate_min, rate_max FROM rollup_LEVEL
    WHERE COMPUTED time < (SELECT computed_before FROM rollup WHERE relation = 'samples_LEVEL')
    UNION ALL
    SELECT series_id, BUCKET AS time, AGGREGATES,
           (min(ARRAY[date_part('epoch', time), FIRST]))[2] AS first,
           (max(ARRAY[date_part('epoch', time), LAST]))[2] AS last, RATES
    FROM FINER WHERE BEHIND time >= (SELECT computed_before FROM rollup WHERE relation = 'samples_LEVEL')
    GROUP BY series_id, BUCKET
) AS buckets
$$;
    of_samples CONSTANT text := 'sum(coalesce(count, 1))::int8 AS count, min(CASE WHEN sum IS NULL THEN value ELSE min END) AS min, '
        || 'max(CASE WHEN sum IS NULL THEN value ELSE max END) AS max, sum(coalesce(sum, value * coalesce(count, 1))) AS sum, '
        || 'sum(coalesce(count, 1))::int8 AS parts';
    rates_of_samples CONSTANT text :=
        'min(CASE WHEN sum IS NULL THEN min END) AS rate_min, max(CASE WHEN sum IS NULL THEN max END) AS rate_max';
    rates_of_buckets CONSTANT text := 'min(rate_min) AS rate_min, max(rate_max) AS rate_max';
    of_buckets CONSTANT text := 'sum(count)::int8 AS count, min(min) AS min, max(max) AS max, ';
    of_tens CONSTANT text := of_buckets || 'sum(sum / parts) AS sum, count(*) AS parts';
    of_minutes CONSTANT text := of_buckets || 'sum(sum) AS sum, sum(parts)::int8 AS parts';
    level record;
    query text;
    first_at text;
    behind_at text;
BEGIN
    FOR level IN
        SELECT name, finer, aggregates, rates, parts, first, last, format('date_bin(%L, time, ''epoch'')', width) AS bucket,
               -- The first bucket from a bound on. The times of samples and finer buckets are compared with it: to
               -- compute the bucket of each would cost more, and hide their number from the planner. Arithmetic
               -- of times without time zone is immutable: the planner computes it.
               format('(date_bin(%L, BOUND AT TIME ZONE ''UTC'' + interval %1$L - interval ''1 us'', ''epoch'') AT TIME ZONE ''UTC'')',
                      width) AS from_bound
        FROM (VALUES ('10s', '10 s', 'samples', of_samples, rates_of_samples, 'count', 'value', 'value'),
                     ('1min', '1 min', 'samples_10s', of_tens, rates_of_buckets, 'parts', 'first', 'last'),
                     ('1h', '1 h', 'samples_1min', of_minutes, rates_of_buckets, 'parts', 'first', 'last'))
            AS levels (name, width, finer, aggregates, rates, parts, first, last)
    LOOP
        query := replace(replace(template, 'LEVEL', level.name), 'BUCKET', level.bucket);
        query := replace(replace(query, 'FIRST', level.first), 'LAST', level.last);
        query := replace(replace(query, 'AGGREGATES', level.aggregates), 'PARTS', level.parts);
        query := replace(query, 'RATES', level.rates);
        EXECUTE format('CREATE VIEW samples_%s AS ', level.name)
            || replace(replace(replace(query, 'COMPUTED', ''), 'BEHIND', ''), 'FINER', level.finer);
        query := replace(query, 'COMPUTED', 'time >= begin_at AND time < end_at AND');
        first_at := replace(level.from_bound, 'BOUND', 'begin_at');
        behind_at := replace(level.from_bound, 'BOUND', 'end_at');
        query := CASE level.finer
            WHEN 'samples' THEN replace(replace(query, 'FINER', 'samples'), 'BEHIND',
                                        format('time >= %s AND time < %s AND', first_at, behind_at))
            ELSE replace(replace(query, 'FINER', format('%s_between(%s, %s) AS part', level.finer, first_at, behind_at)),
                         'BEHIND', '') END;
        EXECUTE format('CREATE FUNCTION samples_%s_between(begin_at timestamptz, end_at timestamptz) RETURNS SETOF samples_%1$s
            LANGUAGE sql STABLE PARALLEL SAFE AS %L', level.name, query);
    END LOOP;
END
$do$;

-- The parts of which the buckets of `samples_1min` consist: buckets that are computed, those of 10 s, and
-- samples. Those with the same `part` are one, with `sum(sum) / sum(weight)` as their mean, and count as `parts`.
-- `part_time` is the partitions' own time: a statement that bounds it reads no others, also if the bounds are
-- known only when it runs.
CREATE VIEW polymeter_minute_part AS
SELECT series_id, time, time AS part_time, time AS part, max, sum, parts AS weight, parts FROM rollup_1min
WHERE time < (SELECT computed_before FROM rollup WHERE relation = 'samples_1min')
UNION ALL
SELECT series_id, date_bin('1 min', time, 'epoch'), time, time, max, sum, count, 1 FROM rollup_10s
WHERE time >= (SELECT computed_before FROM rollup WHERE relation = 'samples_1min')
    AND time < (SELECT computed_before FROM rollup WHERE relation = 'samples_10s')
UNION ALL
SELECT series_id, date_bin('1 min', time, 'epoch'), time, date_bin('10 s', time, 'epoch'), CASE WHEN sum IS NULL THEN value ELSE max END,
       coalesce(sum, value * coalesce(count, 1)), coalesce(count, 1), 1 FROM samples
WHERE time >= (SELECT computed_before FROM rollup WHERE relation = 'samples_10s');
