-- The energy of jobs, as reports compute it (analysis/src/energy.rs).

-- The energy of a job by node and part of the node, for those who may read the table `samples`, and for the
-- owner of the job. Nothing for others, and for a job that does not exist.
--
-- A counter measures a whole node. On a node that the job had alone the increase during the job is the job's.
-- On a shared one it is divided, in each cell of time, by CPU time: the job's share of what all processes
-- used. Counters are linear between their values. The values of the node are read in the time of the job and
-- a minute on either side, and intervals of rollups only if all of them lies there. A counter that covers
-- less than four fifths of the time has no energy; the rest of the time counts like the covered part.
CREATE FUNCTION polymeter_own_energy(of_job int8)
RETURNS TABLE (node text, part text, metric_id text, joules float8, is_estimate boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER PARALLEL RESTRICTED COST 100000 ROWS 2 SET jit = off AS $$
#variable_conflict use_column
DECLARE
    margin CONSTANT interval := '1 min';
    -- The number of values that are read: of more, a coarser rollup. Samples are taken to be a second apart.
    values_max CONSTANT int8 := 200000;
    energy_metrics CONSTANT text[] := ARRAY['node.cray.energy', 'node.ipmi.power', 'node.energy.package', 'node.energy.memory'];
    busy_metrics CONSTANT text[] := ARRAY['node.cpu.user', 'node.cpu.nice', 'node.cpu.system', 'node.cpu.irq', 'node.cpu.softirq'];
    used_metrics CONSTANT text[] := ARRAY['cpu.usage', 'process.cpu.usage', 'perf.task_clock'];
    run job;
    run_end timestamptz;
    nodes text[];
    lowers timestamptz[];
    uppers timestamptz[];
    begins timestamptz[];
    ends timestamptz[];
    shared boolean[];
    ids int8[];
    id_nodes text[];
    id_metrics text[];
    gauges boolean[];
    relation text;
    width interval;
    steps text;
BEGIN
    SELECT * INTO run FROM job
    WHERE job_key = of_job AND (polymeter_is_own(owner, account) OR has_table_privilege(polymeter_user_name(), 'samples'::regclass, 'SELECT'));
    IF NOT FOUND THEN
        RETURN;
    END IF;
    run_end := coalesce(run.ended, now());

    SELECT array_agg(own.node), array_agg(own.started - margin), array_agg(coalesce(own.ended, run_end) + margin),
           array_agg(greatest(own.started, run.started)), array_agg(least(coalesce(own.ended, run_end), run_end)),
           array_agg(own.is_shared)
    INTO nodes, lowers, uppers, begins, ends, shared
    FROM polymeter_job_node AS own WHERE own.job_key = of_job;

    SELECT array_agg(series_id), array_agg(line.node), array_agg(line.metric), array_agg(is_gauge)
    INTO ids, id_nodes, id_metrics, gauges
    FROM (
        SELECT series_id, place.node, series.metric, kind = 'gauge' AS is_gauge
        FROM unnest(nodes, shared) AS place (node, is_shared)
        JOIN series ON series.node = place.node AND series.job_key IS NULL
        JOIN metric ON metric.metric = series.metric
        WHERE series.metric = ANY (energy_metrics) OR is_shared AND series.metric = ANY (busy_metrics)
        UNION ALL
        SELECT series_id, place.node, series.metric, false
        FROM unnest(nodes, shared) AS place (node, is_shared)
        JOIN series ON series.node = place.node AND series.job_key = of_job
        WHERE (series.metric = 'gpu.energy' OR is_shared AND series.metric = ANY (used_metrics))
            AND NOT labels ?| ARRAY['step', 'task']
    ) AS line;
    IF NOT coalesce(id_metrics && (energy_metrics || ARRAY['gpu.energy']), false) THEN
        RETURN;
    END IF;

    -- The finest relation that has all of the job, and few enough values.
    SELECT level.relation, level.width INTO relation, width
    FROM (VALUES ('samples', interval '0'), ('samples_10s', '10 s'), ('samples_1min', '1 min'), ('samples_1h', '1 h'))
        AS level (relation, width)
    LEFT JOIN retention ON retention.relation = level.relation
    WHERE level.relation = 'samples_1h'
        OR extract(epoch FROM run_end - run.started + 2 * margin) * cardinality(ids)
            / greatest(extract(epoch FROM level.width), 1) <= values_max
        AND (coalesce(dropped_before <= run.started, true)
             OR EXISTS (SELECT FROM kept_job WHERE job_key = of_job AND is_complete AND (until IS NULL OR until > dropped_before)))
    ORDER BY level.width LIMIT 1;

    -- The increases of counters, and the integrals of powers, between two values of a series. A counter that
    -- fell to half or less has restarted at 0; one that fell by less has not changed.
    IF relation = 'samples' THEN
        width := '10 s';
        steps := format($step$
            SELECT series_id, begin_at, end_at,
                   CASE WHEN is_gauge THEN value * extract(epoch FROM end_at - begin_at)::float8
                        WHEN is_restarted THEN highest
                        ELSE highest - lag(highest) OVER line END AS increase
            FROM (
                SELECT *, max(value) OVER (PARTITION BY series_id, restarts ORDER BY end_at) AS highest FROM (
                    SELECT *, count(*) FILTER (WHERE is_restarted) OVER line AS restarts FROM (
                        -- A window of a gauge has the mean of its samples; a counter has no sum.
                        SELECT series_id, is_gauge, coalesce(sum / count, value) AS value, lag(time) OVER line AS begin_at, time AS end_at,
                               value <= lag(value) OVER line / 2 AND value < lag(value) OVER line AS is_restarted
                        FROM samples JOIN line USING (series_id)
                        WHERE series_id = ANY (%1$L::int8[]) AND series_id BETWEEN %2$L::int8 AND %3$L::int8 AND time >= %4$L AND time <= %5$L
                            AND time >= lower AND time <= upper
                        WINDOW line AS (PARTITION BY series_id ORDER BY time)
                    ) AS sample WINDOW line AS (PARTITION BY series_id ORDER BY end_at)
                ) AS counted
            ) AS climbed WINDOW line AS (PARTITION BY series_id ORDER BY end_at)$step$,
            ids, (SELECT min(id) FROM unnest(ids) AS id), (SELECT max(id) FROM unnest(ids) AS id),
            (SELECT min(bound) FROM unnest(lowers) AS bound), (SELECT max(bound) FROM unnest(uppers) AS bound));
    ELSE
        steps := format($step$
            SELECT series_id,
                   CASE WHEN is_gauge THEN coalesce(lag(time) OVER line + $11, time) ELSE time END AS begin_at,
                   CASE WHEN is_gauge THEN time + $11 ELSE coalesce(lead(time) OVER line, time + $11) END AS end_at,
                   CASE WHEN is_gauge
                        THEN sum / parts * extract(epoch FROM time + $11 - coalesce(lag(time) OVER line + $11, time))::float8
                        WHEN lead(first) OVER line <= last / 2 AND lead(first) OVER line < last THEN increase + lead(first) OVER line
                        ELSE increase + greatest(lead(first) OVER line - last, 0) END AS increase
            FROM %6$s_between(%4$L, %5$L) AS bucket JOIN line USING (series_id)
            WHERE series_id = ANY (%1$L::int8[]) AND series_id BETWEEN %2$L::int8 AND %3$L::int8
                AND time >= lower AND time + $11 <= upper
            WINDOW line AS (PARTITION BY series_id ORDER BY time)$step$,
            ids, (SELECT min(id) FROM unnest(ids) AS id), (SELECT max(id) FROM unnest(ids) AS id),
            (SELECT min(bound) FROM unnest(lowers) AS bound), (SELECT max(bound) FROM unnest(uppers) AS bound), relation);
    END IF;
    RETURN QUERY EXECUTE format($query$
WITH line AS MATERIALIZED (
    SELECT series_id, node, metric, is_gauge, lower, upper, begin_at AS job_begin, end_at AS job_end, is_shared
    FROM unnest($1, $2, $3, $4) AS line (series_id, node, metric, is_gauge)
    JOIN unnest($5, $6, $7, $8, $9, $10) AS place (node, lower, upper, begin_at, end_at, is_shared) USING (node)
), step AS MATERIALIZED (%s
), known AS MATERIALIZED (
    -- The first and the last value of each series.
    SELECT node, metric, series_id, is_shared, job_begin, job_end, min(coalesce(begin_at, end_at)) AS first_at, max(end_at) AS last_at
    FROM step JOIN line USING (series_id) GROUP BY node, metric, series_id, is_shared, job_begin, job_end
), source AS (
    -- The counter of a whole node, or those of its parts, none of which includes another one. The first
    -- series of a metric counts.
    SELECT * FROM (
        SELECT *, min(rank) OVER (PARTITION BY node) AS best,
               extract(epoch FROM job_end - job_begin)::float8 AS length_s,
               extract(epoch FROM least(job_end, last_at) - greatest(job_begin, first_at))::float8 AS covered_s
        FROM (
            SELECT DISTINCT ON (node, metric) * FROM known
            JOIN (VALUES ('node.cray.energy', 'node', 1), ('node.ipmi.power', 'node', 2), ('node.energy.package', 'processors', 3),
                         ('node.energy.memory', 'memory', 3), ('gpu.energy', 'gpus', 3)) AS list (metric, part, rank) USING (metric)
            ORDER BY node, metric, series_id
        ) AS found
    ) AS ranked WHERE rank = best
), cpu AS (
    -- The metrics of CPU time: of the node, and the most accurate one of the job.
    SELECT node, metric, position IS NOT NULL AS is_used FROM (
        SELECT DISTINCT node, metric, array_position($12, metric) AS position,
               min(array_position($12, metric)) OVER (PARTITION BY node) AS best
        FROM known WHERE metric = ANY ($12 || $13)
    ) AS metrics WHERE position IS NULL OR position = best
), piece AS MATERIALIZED (
    -- The part of each step within the time of the job.
    SELECT node, metric, is_shared, greatest(begin_at, job_begin) AS begin_at, least(end_at, job_end) AS end_at,
           increase / extract(epoch FROM end_at - begin_at)::float8 AS rate
    FROM step JOIN line USING (series_id) WHERE begin_at < end_at AND end_at > job_begin AND begin_at < job_end
), cell AS MATERIALIZED (
    SELECT node, metric, cell_at,
           sum(rate * extract(epoch FROM least(end_at, cell_at + $11) - greatest(begin_at, cell_at))::float8) AS increase
    FROM piece CROSS JOIN LATERAL generate_series(date_bin($11, begin_at, 'epoch'), end_at - interval '1 us', $11) AS cell_at
    WHERE is_shared AND metric <> 'gpu.energy' GROUP BY node, metric, cell_at
), share AS (
    SELECT node, cell_at, CASE WHEN busy > 0 THEN least(used / busy, 1) END AS share FROM (
        SELECT node, cell_at, coalesce(sum(increase) FILTER (WHERE is_used), 0) AS used, sum(increase) FILTER (WHERE NOT is_used) AS busy
        FROM cell JOIN cpu USING (node, metric) GROUP BY node, cell_at
    ) AS sums
), total AS (
    SELECT node, metric, sum(rate * extract(epoch FROM end_at - begin_at)::float8) AS increase
    FROM piece WHERE NOT is_shared OR metric = 'gpu.energy' GROUP BY node, metric
    UNION ALL
    SELECT node, metric, sum(increase * coalesce(share, 0)) FROM cell LEFT JOIN share USING (node, cell_at) GROUP BY node, metric
), energy AS (
    SELECT node, part, metric, is_shared AND metric <> 'gpu.energy' AS is_estimate,
           CASE WHEN length_s > 0 AND covered_s >= 0.8 * length_s THEN coalesce(increase, 0) * length_s / covered_s END AS joules
    FROM source LEFT JOIN total USING (node, metric)
)
SELECT node, part, metric, joules, is_estimate FROM (
    SELECT *, bool_and(joules IS NOT NULL
               AND (NOT is_estimate OR 2 = (SELECT count(DISTINCT is_used) FROM cpu WHERE cpu.node = energy.node)))
           OVER (PARTITION BY node) AS is_known
    FROM energy
) AS energies WHERE is_known$query$, steps)
    USING ids, id_nodes, id_metrics, gauges, nodes, lowers, uppers, begins, ends, shared, width, used_metrics, busy_metrics;
END
$$;

-- The energy of the jobs that the user sees. State a job: each one is computed when it is read.
CREATE VIEW energy_by_job WITH (security_barrier) AS
SELECT run.job_key, run.job_id, energy.node, energy.part, energy.metric_id, energy.joules,
       CASE WHEN energy.is_estimate THEN 'estimated' ELSE 'measured' END AS method,
       run.started AS start_time, run.ended AS stop_time
FROM jobs AS run CROSS JOIN LATERAL polymeter_own_energy(run.job_key) AS energy;
