-- Rollups: tables of the buckets that are computed, and views that add those behind them. The collector
-- computes buckets a few minutes after their end.
--
-- `samples_10s`, `samples_1min` and `samples_1h` have one row per series and bucket. `integral` is the sum of
-- the values, each multiplied by the seconds for which it holds, and `covered_s` the sum of these: the mean
-- over the time of buckets is the quotient of their sums. A sample holds until the next one, at most three
-- times the longer one of the times before it and behind the next one if there is one before, and at most five
-- minutes; without a next one as long as the one before. It counts in the bucket that it lies in. `increase` is for
-- counters: the last value minus the first. A counter that fell to half or less has restarted; it is
-- counted from 0 then. Where it has since exceeded its earlier values, the part before the restart is unknown
-- and left out.

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

-- The statement for the samples of the time from `lower` to `upper`, which is excluded, with the seconds for
-- which they hold. It reads five minutes more on either side. `conditions`: those on the samples that are read,
-- and on those that are returned. The sum of a time without time zone and an interval is immutable: the planner
-- computes it.
CREATE FUNCTION polymeter_held_statement(key text, conditions text[], lower text, upper text) RETURNS text LANGUAGE sql IMMUTABLE AS $do$
SELECT format($statement$
SELECT %1$s, time, value,
       greatest(1e-6, CASE WHEN next_s <= 300
           THEN least(next_s, CASE WHEN before_s <= 300 THEN 3 * greatest(before_s, CASE WHEN next_s + after_s <= 300 THEN after_s END) END)
           ELSE least(before_s, 300) END) AS held_s
FROM (
    SELECT %1$s, time, value, date_part('epoch', time - lag(time) OVER line) AS before_s,
           date_part('epoch', lead(time) OVER line - time) AS next_s,
           date_part('epoch', lead(time, 2) OVER line - lead(time) OVER line) AS after_s
    FROM samples WHERE time >= (%4$s AT TIME ZONE 'UTC' - interval '5 min') AT TIME ZONE 'UTC'
        AND time < (%5$s AT TIME ZONE 'UTC' + interval '5 min') AT TIME ZONE 'UTC' AND %2$s
    WINDOW line AS (PARTITION BY %1$s ORDER BY time)
) AS sample WHERE time >= %4$s AND time < %5$s AND %3$s$statement$,
    key, conditions[1], conditions[2], lower, upper)
$do$;

-- The conditions for the samples behind the buckets of 10 s that are computed.
CREATE FUNCTION polymeter_recent_conditions() RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
SELECT ARRAY['time >= (SELECT computed_before FROM rollup WHERE relation = ''samples_10s'') - interval ''5 min''',
             'time >= (SELECT computed_before FROM rollup WHERE relation = ''samples_10s'')']
$$;

-- The samples of a time, with the seconds for which they hold.
DO $do$
BEGIN
    EXECUTE format('CREATE FUNCTION polymeter_held_samples(begin_at timestamptz, end_at timestamptz)
        RETURNS TABLE (series_id int8, "time" timestamptz, value float8, held_s float8) LANGUAGE sql STABLE PARALLEL SAFE AS %L',
        polymeter_held_statement('series_id', ARRAY['true', 'true'], 'begin_at', 'end_at'));
END
$do$;

-- The buckets of 10 s of the samples from `begin_at` to `end_at`, which is excluded. Both are multiples of 10 s.
CREATE FUNCTION polymeter_sample_buckets(begin_at timestamptz, end_at timestamptz)
RETURNS TABLE (series_id int8, "time" timestamptz, count int8, min float8, max float8, integral float8, covered_s float8, first float8, last float8)
LANGUAGE sql STABLE PARALLEL SAFE AS $$
SELECT series_id, date_bin('10 s', time, 'epoch'), count(*), min(value), max(value), sum(value * held_s), sum(held_s),
       (min(ARRAY[date_part('epoch', time), value]))[2], (max(ARRAY[date_part('epoch', time), value]))[2]
FROM polymeter_held_samples(begin_at, end_at) AS sample GROUP BY 1, 2
$$;

-- The relations of buckets: those that are computed, and behind them those of the finer relation. A function
-- `samples_..._between` returns the buckets that begin from `begin_at` to `end_at`, which is excluded: the
-- same as the view has. The planner knows the times of the samples behind the buckets, which the views hide
-- from it, and leaves partitions out.
DO $do$
DECLARE
    template CONSTANT text := $$
SELECT series_id, time, count, min, max, integral, covered_s, first, last,
       CASE WHEN first = min AND last = max THEN last - first
            WHEN min > max / 2 THEN max - first
            WHEN last = max THEN last
            ELSE max - first + last END AS increase
FROM (
    SELECT series_id, time, count, min, max, integral, covered_s, first, last FROM rollup_LEVEL
    WHERE COMPUTED time < (SELECT computed_before FROM rollup WHERE relation = 'samples_LEVEL')
    UNION ALL
    SELECT series_id, BUCKET AS time, AGGREGATES,
           (min(ARRAY[date_part('epoch', time), FIRST]))[2] AS first,
           (max(ARRAY[date_part('epoch', time), LAST]))[2] AS last
    FROM FINER WHERE BEHIND time >= (SELECT computed_before FROM rollup WHERE relation = 'samples_LEVEL')
    GROUP BY series_id, BUCKET
) AS buckets
$$;
    of_samples CONSTANT text := 'count(*) AS count, min(value) AS min, max(value) AS max, sum(value * held_s) AS integral, sum(held_s) AS covered_s';
    of_buckets CONSTANT text := 'sum(count)::int8 AS count, min(min) AS min, max(max) AS max, sum(integral) AS integral, sum(covered_s) AS covered_s';
    level record;
    query text;
BEGIN
    FOR level IN
        SELECT name, finer, aggregates, first, last, format('date_bin(%L, time, ''epoch'')', width) AS bucket,
               format('(end_at AT TIME ZONE ''UTC'' + interval %L) AT TIME ZONE ''UTC''', width) AS behind_end
        FROM (VALUES ('10s', '10 s', NULL, of_samples, 'value', 'value'),
                     ('1min', '1 min', 'samples_10s', of_buckets, 'first', 'last'),
                     ('1h', '1 h', 'samples_1min', of_buckets, 'first', 'last'))
            AS levels (name, width, finer, aggregates, first, last)
    LOOP
        query := replace(replace(template, 'LEVEL', level.name), 'BUCKET', level.bucket);
        query := replace(replace(query, 'FIRST', level.first), 'LAST', level.last);
        query := replace(query, 'AGGREGATES', level.aggregates);
        EXECUTE format('CREATE VIEW samples_%s AS ', level.name)
            || replace(replace(replace(query, 'COMPUTED', ''), 'BEHIND', ''), 'FINER',
                       coalesce(level.finer, format('(%s) AS sample', polymeter_held_statement('series_id', polymeter_recent_conditions(),
                           '(timestamptz ''-infinity'')', '(timestamptz ''infinity'')'))));
        query := replace(query, 'COMPUTED', 'time >= begin_at AND time < end_at AND');
        query := replace(query, 'BEHIND', format('%s >= begin_at AND %1$s < end_at AND', level.bucket));
        query := replace(query, 'FINER', format(CASE WHEN level.finer IS NULL THEN '(%s) AS sample' ELSE '%s_between(begin_at, %s) AS part' END,
            coalesce(level.finer, polymeter_held_statement('series_id', polymeter_recent_conditions(), 'begin_at', level.behind_end)),
            level.behind_end));
        EXECUTE format('CREATE FUNCTION samples_%s_between(begin_at timestamptz, end_at timestamptz) RETURNS SETOF samples_%1$s
            LANGUAGE sql STABLE PARALLEL SAFE AS %L', level.name, query);
    END LOOP;
END
$do$;

-- The statement for the parts of the minutes of a series from `lower` to `upper`, which is excluded: buckets that
-- are computed, those of 10 s, and samples. It is a part of views: users have no rights on what it reads.
CREATE FUNCTION polymeter_minute_statement(series text, lower text, upper text) RETURNS text LANGUAGE sql IMMUTABLE AS $do$
SELECT format($statement$
SELECT time, max, integral, covered_s FROM rollup_1min
WHERE series_id = %1$s AND time >= %2$s AND time < %3$s AND time < (SELECT computed_before FROM rollup WHERE relation = 'samples_1min')
UNION ALL
SELECT date_bin('1 min', time, 'epoch'), max, integral, covered_s FROM rollup_10s
WHERE series_id = %1$s AND time >= %2$s AND time < %3$s AND time >= (SELECT computed_before FROM rollup WHERE relation = 'samples_1min')
    AND time < (SELECT computed_before FROM rollup WHERE relation = 'samples_10s')
UNION ALL
SELECT date_bin('1 min', time, 'epoch'), value, value * held_s, held_s FROM (%4$s) AS held$statement$,
    series, lower, upper, polymeter_held_statement('series_id', ARRAY[
        format('series_id = %s AND %s', series, (polymeter_recent_conditions())[1]), (polymeter_recent_conditions())[2]], lower, upper))
$do$;

-- They write parts of the schema, and are of no use to others.
REVOKE EXECUTE ON FUNCTION polymeter_held_statement(text, text[], text, text), polymeter_recent_conditions(),
    polymeter_minute_statement(text, text, text) FROM PUBLIC;
