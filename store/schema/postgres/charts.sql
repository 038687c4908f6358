-- The function that charts of dashboards read.

-- The course of the metrics `of_metrics`, one row per series and interval of `step` that has samples.
-- `of_jobs`: the keys of jobs, or null for the series of nodes; `of_nodes`: nodes, or null for all. `value`
-- is the mean of a gauge, or the change of a counter per second of its time; counters in nanoseconds are in
-- seconds, so that CPU time is in cores. `max` is the greatest value of a gauge; of a counter the greatest rate
-- that a window had, where there are windows, else as `value`. `increase` is the whole change in the interval, which is `step_s`
-- seconds long: more than a step if the rollup is coarser. `is_summed` is false for a device whose bytes are
-- those of devices below it, if these have series; and for a local one. It reads the coarsest rollup whose
-- intervals are not longer than a step, a finer one if that has few intervals, or a coarser one if there were
-- too many values, or if retention removed finer ones. Each interval weighs the same in the mean of a gauge,
-- however many samples it has. The times of jobs on nodes whose clocks were ahead of the collector's are
-- corrected, as in `metrics_by_job`.
--
-- This function reads series whose nodes' clocks were `ahead`; `samples_chart` calls it for each such time.
CREATE FUNCTION polymeter_chart(of_metrics text[], of_jobs int8[], of_nodes text[], begin_at timestamptz, end_at timestamptz, step interval,
                                ahead interval)
RETURNS TABLE ("time" timestamptz, series_id int8, metric text, node text, job_key int8, job_id text, labels jsonb, value float8, max float8,
               increase float8, step_s float8, is_summed boolean)
LANGUAGE plpgsql STABLE ROWS 1000 SET jit = off AS $$
#variable_conflict use_column
DECLARE
    -- What is read in a few tenths of a second.
    values_max CONSTANT int8 := 300000;
    few_values CONSTANT int8 := 50000;
    ids int8[];
    contained int8[];
    seconds float8;
    relation text;
    width interval;
    buckets text;
    lower CONSTANT timestamptz := begin_at + ahead;
    upper CONSTANT timestamptz := end_at + ahead;
BEGIN
    step := greatest(step, '1 ms');
    WITH wanted AS MATERIALIZED (
        SELECT series_id, ltrim(measured_node, '/') AS node, metric, job_key, labels, role,
               extract(epoch FROM end_at - begin_at)::float8 AS seconds
        FROM series WHERE of_jobs IS NULL AND job_key IS NULL AND metric = ANY (of_metrics)
            AND (of_nodes IS NULL OR measured_node = ANY (of_nodes))
        UNION ALL
        SELECT series_id, node, metric, job_key, labels, role,
               greatest(extract(epoch FROM least(coalesce(job.ended, now()), upper) - greatest(job.started, lower)), 1)::float8
        FROM job JOIN series USING (job_key)
        WHERE job_key = ANY (of_jobs) AND metric = ANY (of_metrics) AND (of_nodes IS NULL OR node = ANY (of_nodes))
            AND NOT labels ?| ARRAY['step', 'task']
    ), device AS MATERIALIZED (
        SELECT series_id, node, metric, job_key, labels - ARRAY['device', 'interface'] AS others,
               coalesce(labels ->> 'device', labels ->> 'interface') AS name, role, string_to_array(role, ' ') AS words
        FROM wanted WHERE labels ?| ARRAY['device', 'interface']
    )
    SELECT array_agg(series_id), sum(seconds), ARRAY(
        SELECT series_id FROM wanted AS whole WHERE metric LIKE 'io.%' AND NOT labels ? 'device' AND EXISTS (
            SELECT FROM device
            WHERE device.node = whole.node AND device.metric = whole.metric AND device.others = whole.labels
                AND device.job_key IS NOT DISTINCT FROM whole.job_key)
        UNION ALL
        SELECT series_id FROM device AS above WHERE role = 'local' OR EXISTS (
            SELECT FROM device AS below
            WHERE below.node = above.node AND below.metric = above.metric AND below.others = above.others
                AND below.job_key IS NOT DISTINCT FROM above.job_key
                AND CASE WHEN above.role IN ('part', 'stacked') THEN below.role = 'physical'
                         ELSE below.name = ANY (above.words[2:]) END)
    ) INTO ids, seconds, contained FROM wanted;
    IF ids IS NULL OR begin_at >= end_at THEN
        RETURN;
    END IF;
    SELECT level.relation, level.width INTO relation, width
    FROM (VALUES ('samples', interval '0', interval '10 s'), ('samples_10s', '10 s', '1 min'), ('samples_1min', '1 min', '1 h'),
                 ('samples_1h', '1 h', NULL)) AS level (relation, width, next_width)
    LEFT JOIN retention ON retention.relation = level.relation
    WHERE level.relation = 'samples_1h'
        OR seconds / greatest(extract(epoch FROM level.width), 1)
            <= CASE WHEN step < next_width THEN values_max WHEN level.relation <> 'samples' THEN few_values ELSE 0 END
        AND coalesce(dropped_before <= lower, true)
    ORDER BY level.width LIMIT 1;
    step := greatest(step, width);
    IF relation = 'samples' THEN
        buckets := format('SELECT series_id, time - %L::interval AS time, value AS first, value AS last,
            CASE WHEN sum IS NULL THEN value ELSE max END AS max, coalesce(sum, value * coalesce(count, 1)) AS sum,
            coalesce(count, 1) AS parts, coalesce(count, 1) AS count, 0 AS increase, CASE WHEN sum IS NULL THEN max END AS rate_max
            FROM samples WHERE time >= %L AND time < %L', ahead, lower - interval '1 min', upper);
    ELSE
        -- The nearest bucket: the buckets of nodes with different clocks begin at the same times then.
        buckets := format('SELECT series_id, date_bin(%L, time - %L::interval, ''epoch'') AS time, first, last, max, sum, parts, count, increase, rate_max
            FROM %s_between(%L, %L) AS bucket WHERE true',
                          width, ahead - width / 2, relation, date_bin(width, lower, 'epoch') - width, upper);
    END IF;
    RETURN QUERY EXECUTE format($query$
WITH change AS (
    SELECT series_id, time, max, sum, parts, count, rate_max,
           increase + coalesce(CASE WHEN first >= lag(last) OVER line THEN first - lag(last) OVER line
                                    WHEN first <= lag(last) OVER line / 2 THEN first END, 0) AS increase,
           -- Samples fill the first and the last bucket only in part, which their number tells.
           CASE WHEN lag(time) OVER line IS NULL THEN (count - 1) * period
                WHEN lead(time) OVER line IS NULL THEN extract(epoch FROM time - lag(time) OVER line)::float8 - $1 + count * period
                ELSE extract(epoch FROM time - lag(time) OVER line)::float8 END AS seconds
    FROM (
        SELECT *, $1 / max(count) OVER (PARTITION BY series_id) AS period
        FROM (%s AND series_id = ANY (%s) AND series_id BETWEEN %L AND %L) AS found
    ) AS bucket
    WINDOW line AS (PARTITION BY series_id ORDER BY time)
), bin AS (
    SELECT series_id, date_bin($2, time, 'epoch') AS time, max(max) AS max, avg(sum / parts) AS mean, sum(increase) AS increase,
           nullif(sum(seconds), 0) AS seconds, max(rate_max) AS rate_max
    FROM change WHERE time >= $3 GROUP BY 1, 2
)
SELECT bin.time, bin.series_id, member.metric, ltrim(coalesce(block.served_node, block.node), '/'), block.job_key,
       block.job_id, member.labels,
       CASE WHEN kind = 'counter' THEN bin.increase / seconds / unit.factor ELSE mean END,
       CASE WHEN kind = 'counter' THEN greatest(bin.increase / seconds, bin.rate_max) / unit.factor ELSE bin.max END,
       CASE WHEN kind = 'counter' THEN bin.increase / unit.factor END, extract(epoch FROM $2)::float8,
       bin.series_id <> ALL ($5)
FROM bin
CROSS JOIN LATERAL (SELECT * FROM series_block WHERE first_id <= bin.series_id ORDER BY first_id DESC LIMIT 1) AS block
JOIN series_shape_member AS member ON member.shape_id = block.shape_id AND position = bin.series_id - first_id
JOIN metric ON metric.metric = member.metric
CROSS JOIN LATERAL (SELECT CASE WHEN unit = 'nanoseconds' AND kind = 'counter' THEN 1e9 ELSE 1 END::float8 AS factor) AS unit
WHERE kind <> 'counter' OR seconds IS NOT NULL
ORDER BY bin.time, ltrim(coalesce(block.served_node, block.node), '/'), member.metric$query$,
        -- For each chunk or partition the planner looks at each id of a list that it knows.
        buckets, CASE WHEN cardinality(ids) > 1000 THEN 'ARRAY(SELECT unnest($4))' ELSE format('%L::int8[]', ids) END,
        (SELECT min(id) FROM unnest(ids) AS id), (SELECT max(id) FROM unnest(ids) AS id))
    USING extract(epoch FROM width)::float8, step, date_bin(greatest(width, '1 ms'), begin_at, 'epoch'), ids, contained;
END
$$;

CREATE FUNCTION samples_chart(of_metrics text[], of_jobs int8[], of_nodes text[], begin_at timestamptz, end_at timestamptz, step interval)
RETURNS TABLE ("time" timestamptz, series_id int8, metric text, node text, job_key int8, job_id text, labels jsonb, value float8, max float8,
               increase float8, step_s float8, is_summed boolean)
LANGUAGE plpgsql STABLE ROWS 1000 SET jit = off AS $$
#variable_conflict use_column
BEGIN
    IF of_jobs IS NULL OR NOT EXISTS (SELECT FROM session WHERE clock_offset_us IS NOT NULL) THEN
        RETURN QUERY SELECT * FROM polymeter_chart(of_metrics, of_jobs, of_nodes, begin_at, end_at, step, '0');
        RETURN;
    END IF;
    RETURN QUERY
    WITH place AS MATERIALIZED (
        SELECT job_key, job_node.node, coalesce(clock_offset_us, 0) * interval '1 microsecond' AS ahead
        FROM job_node LEFT JOIN session USING (session_id)
        WHERE job_key = ANY (of_jobs) AND (of_nodes IS NULL OR job_node.node = ANY (of_nodes))
    )
    SELECT chart.* FROM (SELECT ahead, array_agg(DISTINCT job_key) AS jobs, array_agg(DISTINCT node) AS nodes FROM place GROUP BY ahead) AS clock
    CROSS JOIN LATERAL polymeter_chart(of_metrics, clock.jobs, clock.nodes, begin_at, end_at, step, clock.ahead) AS chart
    -- A node may have had another clock when it ran another job.
    JOIN place ON place.job_key = chart.job_key AND place.node = chart.node AND place.ahead = clock.ahead
    ORDER BY chart.time, chart.node, chart.metric;
END
$$;
