-- Beside the schema of plain PostgreSQL, on Citus: samples have the key of their node, by which they are
-- distributed. All other tables are on the coordinator.
--
-- Citus plans no lateral join between a distributed and a local table, and checks the rights of a user on the
-- workers, where a view does not lend those of its owner. Therefore views read samples through functions:
-- those for users have the rights of the owner, and check what the user may see. The names and columns of
-- views are the same as on a single server.

-- The key of a node: 32 bits of the SHA-256 digest of its name. Writers compute it themselves.
CREATE FUNCTION polymeter_node_key(node text) RETURNS int4 LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
SELECT ('x' || left(encode(sha256(convert_to(node, 'UTF8')), 'hex'), 8))::bit(32)::int4
$$;

-- Samples that were stored before belong to the node of their series, which may be removed already.
ALTER TABLE samples ADD COLUMN node_key int4;
UPDATE samples SET node_key = coalesce((
    SELECT polymeter_node_key(node) FROM series_block WHERE first_id <= samples.series_id ORDER BY first_id DESC LIMIT 1), 0);
ALTER TABLE samples ALTER COLUMN node_key SET NOT NULL;

-- Columnar partitions need no index: their rows are in the order of their series.
CREATE OR REPLACE VIEW polymeter_partition_to_close AS
SELECT part.relname::text AS partition
FROM pg_inherits
JOIN pg_class part ON part.oid = inhrelid
WHERE inhparent = to_regclass('samples')
    AND part.relam = (SELECT oid FROM pg_am WHERE amname = 'heap')
    AND part.relname < 'samples_' || to_char((now() AT TIME ZONE 'UTC' - interval '1 h')::date, 'YYYYMMDD')
    AND NOT EXISTS (
        SELECT FROM pg_index JOIN pg_class built ON built.oid = indexrelid
        WHERE indrelid = part.oid AND indisvalid AND built.relname = part.relname || '_by_series'
    );

-- Whether the user may read the table of samples. Citus refuses to distribute a table to which views refer
-- that depend on local tables, and a constant of type regclass is such a reference: the views below call this
-- function in its place.
DO $do$
DECLARE
    dependent record;
    condition CONSTANT text := 'has_table_privilege((''samples''::regclass)::oid, ''SELECT''::text)';
BEGIN
    EXECUTE format('CREATE FUNCTION polymeter_reads_samples() RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE AS %L',
                   format('SELECT pg_catalog.has_table_privilege(%L, ''SELECT'')', format('%I.samples', current_schema())));
    FOR dependent IN
        SELECT relname, reloptions, pg_get_viewdef(oid) AS definition FROM pg_class
        WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema()) AND relkind = 'v'
            AND strpos(pg_get_viewdef(oid), condition) > 0
    LOOP
        EXECUTE format('CREATE OR REPLACE VIEW %I %s AS %s', dependent.relname,
                       coalesce('WITH (' || array_to_string(dependent.reloptions, ', ') || ')', ''),
                       replace(dependent.definition, condition, 'polymeter_reads_samples()'));
    END LOOP;
END
$do$;

-- The node of a series, if the user may see its samples from `lower` to `upper`: of a series of an own job,
-- and of a series of a node, or of a device that serves it, while own jobs ran there. Null otherwise.
CREATE FUNCTION polymeter_readable_node(of_series int8, lower timestamptz, upper timestamptz)
RETURNS text LANGUAGE sql STABLE PARALLEL RESTRICTED AS $$
SELECT node FROM (SELECT node, job_key, served_node FROM series_block WHERE first_id <= of_series ORDER BY first_id DESC LIMIT 1) AS block
WHERE lower <= upper AND (
    has_table_privilege(polymeter_user_name(), 'samples'::regclass, 'SELECT')
    OR EXISTS (SELECT FROM job WHERE job.job_key = block.job_key AND polymeter_is_own(owner, account))
    OR block.job_key IS NULL AND tstzrange(lower, upper, '[]') <@ (
        SELECT range_agg(tstzrange(job_node.started - ahead, coalesce(job_node.ended, now() + interval '1 hour') - ahead, '[]'))
        FROM job JOIN job_node USING (job_key) LEFT JOIN session USING (session_id)
        -- The times of a device are not by the clock of the node that it serves.
        CROSS JOIN LATERAL (
            SELECT CASE WHEN block.served_node IS NULL THEN 0 ELSE coalesce(clock_offset_us, 0) END * interval '1 microsecond' AS ahead
        ) AS clock
        WHERE polymeter_is_own(owner, account) AND job_node.node = coalesce(block.served_node, block.node)))
$$;

-- The samples of a series from `lower` to `upper`, both included. A statement with constants goes to one
-- shard, and to few partitions.
CREATE FUNCTION polymeter_samples_of_node(of_node text, of_series int8, lower timestamptz, upper timestamptz)
RETURNS TABLE ("time" timestamptz, value float8, count int8, min float8, max float8, sum float8)
LANGUAGE plpgsql STABLE PARALLEL RESTRICTED COST 10000 ROWS 1000 AS $$
BEGIN
    RETURN QUERY EXECUTE format(
        'SELECT time, value, count, min, max, sum FROM samples WHERE node_key = %L::int4 AND series_id = %L::int8 AND time >= %L::timestamptz AND time <= %L::timestamptz',
        polymeter_node_key(of_node), of_series, lower, upper);
END
$$;

-- The same for users, who see the samples of their jobs.
CREATE FUNCTION polymeter_own_samples(of_series int8, lower timestamptz, upper timestamptz)
RETURNS TABLE ("time" timestamptz, value float8)
LANGUAGE plpgsql STABLE SECURITY DEFINER PARALLEL RESTRICTED COST 10000 ROWS 1000 SET jit = off AS $$
DECLARE
    of_node CONSTANT text := polymeter_readable_node(of_series, lower, upper);
BEGIN
    IF of_node IS NOT NULL THEN
        RETURN QUERY SELECT own.time, own.value FROM polymeter_samples_of_node(of_node, of_series, lower, upper) AS own;
    END IF;
END
$$;

-- The minutes of a series that begin from `lower` to `upper`, with the rows from `lower` on, for users, who
-- see those of their jobs.
CREATE FUNCTION polymeter_own_minutes(of_series int8, lower timestamptz, upper timestamptz)
RETURNS TABLE ("time" timestamptz, max float8, sum float8, parts int8)
LANGUAGE plpgsql STABLE SECURITY DEFINER PARALLEL RESTRICTED COST 10000 ROWS 1000 SET jit = off AS $$
#variable_conflict use_column
DECLARE
    of_node CONSTANT text := polymeter_readable_node(of_series, lower, upper);
    of_minutes timestamptz;
    of_samples timestamptz;
    part_upper CONSTANT timestamptz := upper + interval '1 min';
BEGIN
    IF of_node IS NULL THEN
        RETURN;
    END IF;
    SELECT computed_before INTO of_minutes FROM rollup WHERE relation = 'samples_1min';
    SELECT computed_before INTO of_samples FROM rollup WHERE relation = 'samples_10s';
    RETURN QUERY SELECT part.time, max(part.max), sum(part.sum), sum(part.parts)::int8 FROM (
        SELECT time, max, sum, parts FROM rollup_1min
        WHERE series_id = of_series AND time >= lower AND time < part_upper AND time < of_minutes
        UNION ALL
        SELECT date_bin('1 min', time, 'epoch'), max, sum / count, 1 FROM rollup_10s
        WHERE series_id = of_series AND time >= lower AND time < part_upper AND time >= of_minutes AND time < of_samples
        UNION ALL
        SELECT date_bin('1 min', time, 'epoch'), max(CASE WHEN sum IS NULL THEN value ELSE max END),
               sum(coalesce(sum, value * coalesce(count, 1))) / sum(coalesce(count, 1))::float8, 1
        FROM polymeter_samples_of_node(of_node, of_series, greatest(lower, of_samples), part_upper) WHERE time < part_upper
        GROUP BY date_bin('10 s', time, 'epoch'), 1
    ) AS part WHERE part.time >= lower AND part.time <= upper GROUP BY part.time;
END
$$;

-- The samples of the series `ids`, or of all if it is null, from `begin_at` to `end_at`, both included, for
-- those who may read the table.
CREATE FUNCTION polymeter_samples_among(ids int8[], begin_at timestamptz, end_at timestamptz)
RETURNS TABLE (series_id int8, "time" timestamptz, value float8, count int8, min float8, max float8, sum float8)
LANGUAGE plpgsql STABLE PARALLEL RESTRICTED COST 10000 AS $$
BEGIN
    RETURN QUERY EXECUTE format('SELECT series_id, time, value, count, min, max, sum FROM samples WHERE time >= %L::timestamptz AND time <= %L::timestamptz %s',
        begin_at, end_at, CASE WHEN ids IS NULL THEN '' ELSE format('AND series_id = ANY (%L::int8[])', ids) END);
END
$$;

-- The buckets of 10 s behind those that are computed, of the series `ids`, or of all if it is null. Each
-- shard computes its own.
CREATE FUNCTION polymeter_recent_buckets(ids int8[], begin_at timestamptz, end_at timestamptz)
RETURNS TABLE (series_id int8, "time" timestamptz, count int8, min float8, max float8, sum float8, first float8, last float8,
               rate_min float8, rate_max float8)
LANGUAGE plpgsql STABLE PARALLEL RESTRICTED COST 10000 AS $$
DECLARE
    computed CONSTANT timestamptz := (SELECT computed_before FROM rollup WHERE relation = 'samples_10s');
    lower CONSTANT timestamptz := greatest(begin_at, computed);
BEGIN
    IF lower >= end_at THEN
        RETURN;
    END IF;
    RETURN QUERY EXECUTE format(
        'SELECT series_id, date_bin(''10 s'', time, ''epoch'') AS time, sum(coalesce(count, 1))::int8,
                min(CASE WHEN sum IS NULL THEN value ELSE min END), max(CASE WHEN sum IS NULL THEN value ELSE max END),
                sum(coalesce(sum, value * coalesce(count, 1))),
                (min(ARRAY[date_part(''epoch'', time), value]))[2], (max(ARRAY[date_part(''epoch'', time), value]))[2],
                min(CASE WHEN sum IS NULL THEN min END), max(CASE WHEN sum IS NULL THEN max END)
         FROM samples WHERE time >= %L::timestamptz AND time < %L::timestamptz AND date_bin(''10 s'', time, ''epoch'') >= %1$L::timestamptz
             AND date_bin(''10 s'', time, ''epoch'') < %3$L::timestamptz %4$s
         GROUP BY node_key, series_id, date_bin(''10 s'', time, ''epoch'')',
        lower, end_at + interval '10 s', end_at,
        CASE WHEN ids IS NULL THEN '' ELSE format('AND series_id = ANY (%L::int8[])', ids) END);
END
$$;

-- The relations of buckets of 10 s, of which the others are made.
CREATE OR REPLACE VIEW samples_10s AS
SELECT series_id, time, count, min, max, sum, parts, first, last,
       CASE WHEN first = min AND last = max THEN last - first
            WHEN min > max / 2 THEN max - first
            WHEN last = max THEN last
            ELSE max - first + last END AS increase, rate_min, rate_max
FROM (
    SELECT series_id, time, count, min, max, sum, count AS parts, first, last, rate_min, rate_max FROM rollup_10s
    WHERE time < (SELECT computed_before FROM rollup WHERE relation = 'samples_10s')
    UNION ALL
    SELECT series_id, time, count, min, max, sum, count, first, last, rate_min, rate_max FROM polymeter_recent_buckets(NULL, '-infinity', 'infinity')
) AS buckets;

-- As the functions `samples_..._between` with two arguments, of the series `ids` alone.
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
    WHERE OF_SERIES time >= begin_at AND time < end_at
        AND time < (SELECT computed_before FROM rollup WHERE relation = 'samples_LEVEL')
    UNION ALL
    BEHIND
) AS buckets
$$;
    of_finer CONSTANT text := $$SELECT series_id, BUCKET AS time, sum(count)::int8, min(min), max(max), SUM,
           (min(ARRAY[date_part('epoch', time), first]))[2], (max(ARRAY[date_part('epoch', time), last]))[2],
           min(rate_min), max(rate_max)
    FROM FINER_between(begin_at, (end_at AT TIME ZONE 'UTC' + interval 'WIDTH') AT TIME ZONE 'UTC', ids)
    WHERE BUCKET >= begin_at AND BUCKET < end_at AND time >= (SELECT computed_before FROM rollup WHERE relation = 'samples_LEVEL')
    GROUP BY series_id, BUCKET$$;
    level record;
    query text;
BEGIN
    FOR level IN
        SELECT * FROM (VALUES ('10s', '10 s', NULL, 'count', NULL),
                              ('1min', '1 min', 'samples_10s', 'parts', 'sum(sum / parts), count(*)'),
                              ('1h', '1 h', 'samples_1min', 'parts', 'sum(sum), sum(parts)::int8'))
            AS levels (name, width, finer, parts, means)
    LOOP
        query := replace(template, 'BEHIND', coalesce(replace(of_finer, 'FINER', level.finer),
            'SELECT series_id, time, count, min, max, sum, count, first, last, rate_min, rate_max FROM polymeter_recent_buckets(ids, begin_at, end_at)'));
        query := replace(replace(query, 'PARTS', level.parts), 'SUM', coalesce(level.means, ''));
        query := replace(replace(query, 'BUCKET', format('date_bin(%L, time, ''epoch'')', level.width)), 'WIDTH', level.width);
        query := replace(query, 'LEVEL', level.name);
        EXECUTE format('CREATE FUNCTION samples_%s_between(begin_at timestamptz, end_at timestamptz, ids int8[]) RETURNS SETOF samples_%1$s
            LANGUAGE sql STABLE PARALLEL RESTRICTED AS %L', level.name, replace(query, 'OF_SERIES', 'series_id = ANY (ids) AND'));
        IF level.finer IS NULL THEN
            query := replace(replace(query, 'OF_SERIES', ''), '(ids,', '(NULL,');
            EXECUTE format('CREATE OR REPLACE FUNCTION samples_10s_between(begin_at timestamptz, end_at timestamptz) RETURNS SETOF samples_10s
                LANGUAGE sql STABLE PARALLEL RESTRICTED AS %L', query);
        END IF;
    END LOOP;
END
$do$;

CREATE OR REPLACE VIEW polymeter_minute_part AS
SELECT series_id, time, time AS part_time, time AS part, max, sum, parts AS weight, parts FROM rollup_1min
WHERE time < (SELECT computed_before FROM rollup WHERE relation = 'samples_1min')
UNION ALL
SELECT series_id, date_bin('1 min', time, 'epoch'), time, time, max, sum, count, 1 FROM rollup_10s
WHERE time >= (SELECT computed_before FROM rollup WHERE relation = 'samples_1min')
    AND time < (SELECT computed_before FROM rollup WHERE relation = 'samples_10s')
UNION ALL
SELECT series_id, date_bin('1 min', time, 'epoch'), time, time, max, sum, count, 1 FROM polymeter_recent_buckets(NULL, '-infinity', 'infinity');

-- The views for users, as in views.sql.
CREATE OR REPLACE VIEW metrics_by_job WITH (security_barrier) AS
SELECT run.job_id, sample.time - coalesce(series.clock_offset, '0') AS timestamp, series.node AS device_id, series.metric AS metric_id, sample.value,
       series.labels, run.job_started AS start_time, run.job_ended AS stop_time
FROM polymeter_visible_job_node AS run
CROSS JOIN LATERAL (
    SELECT series_id, node, metric, labels, run.started - interval '1 hour' AS lower, coalesce(run.ended, now()) + interval '1 hour' AS upper,
           run.clock_offset
    FROM series WHERE series.job_key = run.job_key AND series.node = run.node
    UNION ALL
    SELECT series_id, measured_node, metric, labels, run.started - served.ahead, coalesce(run.ended, now() + interval '1 hour') - served.ahead,
           CASE WHEN series.node = run.node THEN run.clock_offset END
    FROM series
    CROSS JOIN LATERAL (SELECT CASE WHEN series.node = run.node THEN '0' ELSE coalesce(run.clock_offset, '0') END AS ahead) AS served
    WHERE series.job_key IS NULL AND series.measured_node = run.node
) AS series
CROSS JOIN LATERAL polymeter_own_samples(series.series_id, series.lower, series.upper) AS sample;

CREATE OR REPLACE VIEW metrics WITH (security_barrier) AS
SELECT timestamp, device_id, metric_id, value, labels FROM (
    SELECT sample.time AS timestamp, ltrim(series.measured_node, '/') AS device_id,
           series.metric AS metric_id, sample.value,
           CASE WHEN series.job_id IS NULL THEN series.labels
                ELSE series.labels || jsonb_build_object('job_id', series.job_id) END AS labels
    FROM series CROSS JOIN LATERAL polymeter_own_samples(series.series_id, '-infinity', 'infinity') AS sample
    WHERE (SELECT polymeter_reads_samples())
    UNION ALL
    SELECT sample.time, series.node, series.metric, sample.value, series.labels
    FROM polymeter_own_time AS run
    CROSS JOIN LATERAL (
        SELECT series_id, node, metric, labels || jsonb_build_object('job_id', run.job_id) AS labels
        FROM series WHERE series.job_key = run.job_key AND series.node = run.node
        UNION ALL
        SELECT series_id, measured_node, metric, labels
        FROM series WHERE run.job_key IS NULL AND series.job_key IS NULL AND series.measured_node = run.node
            AND (series.node <> run.node) = run.is_of_devices
    ) AS series
    CROSS JOIN LATERAL polymeter_own_samples(series.series_id, run.lower, run.upper) AS sample
) AS visible;

CREATE OR REPLACE VIEW metrics_by_job_summary WITH (security_barrier) AS
SELECT run.job_id, bucket.time - coalesce(series.clock_offset, '0') AS timestamp, series.node AS device_id, series.metric AS metric_id,
       CASE series.kind WHEN 'counter' THEN bucket.max ELSE bucket.sum / bucket.parts END AS value,
       series.labels, run.job_started AS start_time, run.job_ended AS stop_time
FROM polymeter_visible_job_node AS run
CROSS JOIN LATERAL (
    SELECT series_id, node, series.metric, labels, kind,
           run.started - interval '1 hour' AS lower, coalesce(run.ended, now()) + interval '1 hour' AS upper, run.clock_offset
    FROM series JOIN metric ON metric.metric = series.metric
    WHERE series.job_key = run.job_key AND series.node = run.node
    UNION ALL
    SELECT series_id, measured_node, series.metric, labels, kind, run.started - served.ahead,
           coalesce(run.ended, now() + interval '1 hour') - interval '1 min' - served.ahead,
           CASE WHEN series.node = run.node THEN run.clock_offset END
    FROM series JOIN metric ON metric.metric = series.metric
    CROSS JOIN LATERAL (SELECT CASE WHEN series.node = run.node THEN '0' ELSE coalesce(run.clock_offset, '0') END AS ahead) AS served
    WHERE series.job_key IS NULL AND series.measured_node = run.node
) AS series
CROSS JOIN LATERAL polymeter_own_minutes(series.series_id, series.lower, series.upper) AS bucket;

CREATE OR REPLACE VIEW metrics_summary WITH (security_barrier) AS
SELECT timestamp, device_id, metric_id, value, labels FROM (
    SELECT bucket.time AS timestamp, ltrim(series.measured_node, '/') AS device_id,
           series.metric AS metric_id,
           CASE metric.kind WHEN 'counter' THEN bucket.max ELSE bucket.sum / bucket.parts END AS value,
           CASE WHEN series.job_id IS NULL THEN series.labels
                ELSE series.labels || jsonb_build_object('job_id', series.job_id) END AS labels
    FROM series JOIN metric ON metric.metric = series.metric
    CROSS JOIN LATERAL polymeter_own_minutes(series.series_id, '-infinity', 'infinity') AS bucket
    WHERE (SELECT polymeter_reads_samples())
    UNION ALL
    SELECT bucket.time, series.node, series.metric,
           CASE series.kind WHEN 'counter' THEN bucket.max ELSE bucket.sum / bucket.parts END, series.labels
    FROM polymeter_own_time AS run
    CROSS JOIN LATERAL (
        SELECT series_id, node, series.metric, kind, labels || jsonb_build_object('job_id', run.job_id) AS labels
        FROM series JOIN metric ON metric.metric = series.metric
        WHERE series.job_key = run.job_key AND series.node = run.node
        UNION ALL
        SELECT series_id, measured_node, series.metric, kind, labels
        FROM series JOIN metric ON metric.metric = series.metric
        WHERE run.job_key IS NULL AND series.job_key IS NULL AND series.measured_node = run.node
            AND (series.node <> run.node) = run.is_of_devices
    ) AS series
    CROSS JOIN LATERAL polymeter_own_minutes(series.series_id, run.lower, run.minute_upper) AS bucket
) AS visible;

-- The functions that read samples of a list of series (charts.sql): they read the same through
-- the functions above.
DO $do$
DECLARE
    change record;
    definition text;
BEGIN
    FOR change IN
        SELECT * FROM (VALUES
            ('polymeter_chart', $$FROM samples WHERE time >= %L AND time < %L', ahead, lower - interval '1 min', upper)$$,
             $$FROM polymeter_samples_among(%L, %L, %L) WHERE time < %4$L', ahead, ids, lower - interval '1 min', upper)$$),
            ('polymeter_chart', $$FROM %s_between(%L, %L) AS bucket WHERE true',$$, $$FROM %s_between(%L, %L, %L::int8[]) AS bucket WHERE true',$$),
            ('polymeter_chart', $$date_bin(width, lower, 'epoch') - width, upper)$$, $$date_bin(width, lower, 'epoch') - width, upper, ids)$$)
        ) AS changes (function, before, after)
    LOOP
        definition := pg_get_functiondef(change.function::regproc);
        IF strpos(definition, change.before) = 0 THEN
            RAISE EXCEPTION 'the function % has another text: %', change.function, change.before;
        END IF;
        EXECUTE replace(definition, change.before, change.after);
    END LOOP;
END
$do$;

-- Functions with the rights of the owner must not find tables that a user made.
DO $$
DECLARE
    called record;
BEGIN
    FOR called IN
        SELECT oid::regprocedure AS name, prosecdef FROM pg_proc WHERE pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
            AND proname IN ('polymeter_readable_node', 'polymeter_samples_of_node', 'polymeter_own_samples', 'polymeter_own_minutes',
                            'polymeter_samples_among', 'polymeter_recent_buckets')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', called.name, current_schema());
        IF called.prosecdef THEN
            EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', called.name);
        END IF;
    END LOOP;
END
$$;
