-- The energy of jobs, as reports compute it (analysis/src/energy.rs), always from samples. A window of a gauge
-- has the mean of its samples; a counter has no sum.

-- The times of jobs on their nodes, and the bounds of the values that are read.
CREATE VIEW polymeter_job_place AS
SELECT job.job_key, job.job_id, job.started AS start_time, job.ended AS stop_time, own.node,
       max(own.started, job.started) AS begin_at,
       min(coalesce(own.ended, 9223372036854775807), coalesce(job.ended, CAST(strftime('%s', 'now') AS INTEGER) * 1000000000)) AS end_at,
       own.started - 60000000000 AS lower, coalesce(own.ended + 60000000000, 9223372036854775807) AS upper, own.is_shared
FROM job JOIN polymeter_job_node AS own ON own.job_key = job.job_key;

-- The series that make up the energy of a job on a node: `rank` 1 and 2 for whole nodes, 3 for parts; and CPU
-- time to divide it: the node's (4), and the job's (5 to 7, the most accurate first). `first_at` is null for
-- a series without values there.
CREATE VIEW polymeter_energy_series AS
SELECT place.job_key, place.node, list.part, list.metric, list.rank, series.series_id, metric.kind,
       (SELECT min(time) FROM samples
        WHERE samples.series_id = series.series_id AND samples.time >= place.lower AND samples.time <= place.upper) AS first_at,
       (SELECT max(time) FROM samples
        WHERE samples.series_id = series.series_id AND samples.time >= place.lower AND samples.time <= place.upper) AS last_at
FROM polymeter_job_place AS place
JOIN (
    SELECT 'node.cray.energy' AS metric, 'node' AS part, 1 AS rank, 1 AS is_of_node
    UNION ALL VALUES ('node.ipmi.power', 'node', 2, 1), ('node.energy.package', 'processors', 3, 1), ('node.energy.memory', 'memory', 3, 1),
        ('gpu.energy', 'gpus', 3, 0), ('node.cpu.user', NULL, 4, 1), ('node.cpu.nice', NULL, 4, 1), ('node.cpu.system', NULL, 4, 1),
        ('node.cpu.irq', NULL, 4, 1), ('node.cpu.softirq', NULL, 4, 1), ('cpu.usage', NULL, 5, 0), ('process.cpu.usage', NULL, 6, 0),
        ('perf.task_clock', NULL, 7, 0)
) AS list
JOIN series ON series.node = place.node AND series.job_key IS CASE WHEN list.is_of_node THEN NULL ELSE place.job_key END
    AND series.metric = list.metric
JOIN metric ON metric.metric = series.metric
WHERE list.is_of_node OR json_extract(series.labels, '$.step') IS NULL AND json_extract(series.labels, '$.task') IS NULL;

-- The counter of a whole node, or those of its parts, with the part of the job's time that the first series
-- of each covers.
CREATE VIEW polymeter_energy_source AS
SELECT place.job_key, place.job_id, place.start_time, place.stop_time, place.node, place.begin_at, place.end_at, place.lower, place.upper,
       place.is_shared AND first.metric <> 'gpu.energy' AS is_estimate, first.part, first.metric, first.rank, first.kind,
       1.0 * (min(place.end_at, first.last_at) - max(place.begin_at, first.first_at)) / (place.end_at - place.begin_at) AS covered
FROM polymeter_job_place AS place
JOIN polymeter_energy_series AS first ON first.job_key = place.job_key AND first.node = place.node
WHERE first.rank <= 3 AND first.first_at IS NOT NULL AND place.end_at > place.begin_at
    AND NOT EXISTS (
        SELECT 1 FROM polymeter_energy_series AS better
        WHERE better.job_key = place.job_key AND better.node = place.node AND better.first_at IS NOT NULL
            AND (better.rank < first.rank OR better.metric = first.metric AND better.series_id < first.series_id));

-- A counter that fell to half or less has restarted at 0; one that fell by less has not changed.
--
-- Without a division the increases between samples count as far as they lie in the job's time. On a shared
-- node the increases of all counters in cells of time are compared; these are at least 10 s long, and at most
-- 2000.
CREATE VIEW energy_by_job AS
SELECT job_key, job_id, node, part, metric AS metric_id,
       CASE WHEN is_estimate THEN (
           WITH RECURSIVE line (series_id, rank, kind) AS (
               SELECT series_id, rank, kind FROM polymeter_energy_series AS of_place
               WHERE of_place.job_key = source.job_key AND of_place.node = source.node AND of_place.first_at IS NOT NULL
                   AND (of_place.metric = source.metric OR of_place.rank = 4 OR of_place.rank = (
                       SELECT min(used.rank) FROM polymeter_energy_series AS used
                       WHERE used.job_key = source.job_key AND used.node = source.node AND used.first_at IS NOT NULL AND used.rank >= 5))
           ), bound (at) AS (
               SELECT begin_at
               UNION ALL
               SELECT min(at + max(10000000000, (end_at - begin_at) / 2000), end_at) FROM bound WHERE at < end_at
           ), place (series_id, rank, kind, at, before_at, after_at) AS (
               SELECT series_id, rank, kind, at,
                      (SELECT max(time) FROM samples WHERE samples.series_id = line.series_id AND time <= at AND time >= lower),
                      (SELECT min(time) FROM samples WHERE samples.series_id = line.series_id AND time > at AND time <= upper)
               FROM line CROSS JOIN bound
           ), point (series_id, rank, kind, at, value) AS (
               SELECT series_id, rank, kind, at,
                      CASE WHEN before_at IS NULL THEN after_value WHEN after_at IS NULL THEN before_value
                           WHEN kind = 'gauge' THEN after_value
                           WHEN after_value <= before_value / 2 AND after_value < before_value
                           THEN after_value * (at - before_at) / (after_at - before_at)
                           ELSE before_value + max(after_value - before_value, 0) * (at - before_at) / (after_at - before_at) END
               FROM (
                   SELECT *, (SELECT coalesce(sum / count, value) FROM samples WHERE samples.series_id = place.series_id AND time = before_at)
                              AS before_value,
                          (SELECT coalesce(sum / count, value) FROM samples WHERE samples.series_id = place.series_id AND time = after_at)
                              AS after_value
                   FROM place
               )
           ), step (rank, at, increase) AS (
               SELECT rank, at,
                      CASE WHEN kind = 'gauge' THEN value * (at - lag(at) OVER line) / 1e9
                           WHEN value <= lag(value) OVER line / 2 AND value < lag(value) OVER line THEN value
                           ELSE max(value - lag(value) OVER line, 0) END
               FROM point WINDOW line AS (PARTITION BY series_id ORDER BY at)
           )
           SELECT CASE WHEN sum(busy) > 0 AND count(used) > 0 THEN sum(energy * coalesce(min(used / nullif(busy, 0), 1), 0)) END / covered
           FROM (
               SELECT sum(increase) FILTER (WHERE rank <= 3) AS energy, sum(increase) FILTER (WHERE rank = 4) AS busy,
                      sum(increase) FILTER (WHERE rank >= 5) AS used
               FROM step WHERE at > begin_at GROUP BY at
           )
       ) ELSE (
           SELECT sum(increase * (min(step.end_at, source.end_at) - max(step.begin_at, source.begin_at)) / (step.end_at - step.begin_at))
                  / covered
           FROM (
               SELECT begin_at, end_at,
                      CASE WHEN kind = 'gauge' THEN value * (end_at - begin_at) / 1e9
                           WHEN is_restarted THEN highest
                           ELSE highest - lag(highest) OVER line END AS increase
               FROM (
                   SELECT *, max(value) OVER (PARTITION BY series_id, restarts ORDER BY end_at) AS highest FROM (
                       SELECT *, sum(is_restarted) OVER line AS restarts FROM (
                           SELECT own.series_id, own.kind, coalesce(sum / count, value) AS value, lag(time) OVER line AS begin_at, time AS end_at,
                                  coalesce(value <= lag(value) OVER line / 2 AND value < lag(value) OVER line, 0) AS is_restarted
                           FROM polymeter_energy_series AS own
                           JOIN samples ON samples.series_id = own.series_id AND time >= lower AND time <= upper
                           WHERE own.job_key = source.job_key AND own.node = source.node AND own.metric = source.metric
                           WINDOW line AS (PARTITION BY own.series_id ORDER BY time)
                       ) WINDOW line AS (PARTITION BY series_id ORDER BY end_at)
                   )
               ) WINDOW line AS (PARTITION BY series_id ORDER BY end_at)
           ) AS step WHERE step.begin_at < step.end_at AND step.end_at > source.begin_at AND step.begin_at < source.end_at
       ) END AS joules,
       CASE WHEN is_estimate THEN 'estimated' ELSE 'measured' END AS method, start_time, stop_time
FROM polymeter_energy_source AS source
WHERE NOT EXISTS (
    SELECT 1 FROM polymeter_energy_source AS part
    WHERE part.job_key = source.job_key AND part.node = source.node AND part.covered < 0.8)
AND joules IS NOT NULL;
