-- The views for users, bounded by the times of jobs. Their names and columns are those of Kwollect, which
-- PostgREST and dashboards expect.

-- The views of jobs subtract the time by which the clock of a node, in the last session that followed the
-- job there, was ahead of the collector's, so that the times of nodes can be compared.

-- The jobs on nodes whose clocks were ahead or behind by much, with these times.
CREATE VIEW polymeter_skewed_job AS
SELECT job_node.job_key, min(job_node.started - coalesce(session.clock_offset_us * 1000, 0)) AS started,
       max(job_node.ended - coalesce(session.clock_offset_us * 1000, 0)) AS ended
FROM job_node LEFT JOIN session ON session.session_id = job_node.session_id
WHERE job_node.job_key IN (
    SELECT place.job_key FROM job_node AS place CROSS JOIN session AS skewed ON skewed.session_id = place.session_id
    WHERE place.node IN (SELECT node FROM session WHERE clock_offset_us IS NOT NULL) AND skewed.clock_offset_us IS NOT NULL)
GROUP BY job_node.job_key;

CREATE VIEW jobs AS
SELECT job_key, job_id, cluster, owner, owner_uid, started, ended, account, queue, nodes, cores, state, exit_code, exit_signal,
       name, display_id, time_limit_s, memory_bytes, gpus, restarts, unread, run, scheduler
FROM job WHERE job_key NOT IN (SELECT job_key FROM polymeter_skewed_job)
UNION ALL
SELECT job.job_key, job_id, cluster, owner, owner_uid, skewed.started, CASE WHEN job.ended IS NOT NULL THEN skewed.ended END, account,
       queue, nodes, cores, state, exit_code, exit_signal, name, display_id, time_limit_s, memory_bytes, gpus, restarts, unread, run, scheduler
FROM polymeter_skewed_job AS skewed JOIN job ON job.job_key = skewed.job_key;

-- What jobs used that have ended, as their reports have it.
CREATE VIEW usage_by_job AS
SELECT run.job_key, run.job_id, run.started AS start_time, run.ended AS stop_time, used.elapsed_s, used.nodes, used.cores, used.cpu_s, used.cores_peak, used.memory_request_bytes,
       used.memory_used_bytes, used.memory_bound_bytes, used.gpus, used.gpus_used, used.gpu_s
FROM jobs AS run JOIN job_usage AS used ON used.job_key = run.job_key
WHERE used.elapsed_s IS NOT NULL AND run.ended IS NOT NULL;

-- The energy of these jobs by node and source.
CREATE VIEW energy_by_job AS
SELECT run.job_key, run.job_id, energy.node, energy.part, energy.source, energy.devices, energy.joules, energy.error_joules, energy.delay_s,
       energy.is_counted, CASE WHEN energy.is_estimate THEN 'estimated' ELSE 'measured' END AS method,
       run.started AS start_time, run.ended AS stop_time
FROM jobs AS run JOIN job_usage AS used ON used.job_key = run.job_key JOIN job_energy AS energy ON energy.job_key = run.job_key
WHERE used.elapsed_s IS NOT NULL AND run.ended IS NOT NULL;

CREATE VIEW nodetime_by_job AS
SELECT job.job_id, job_node.started - coalesce(session.clock_offset_us * 1000, 0) AS start_time,
       job_node.ended - coalesce(session.clock_offset_us * 1000, 0) AS stop_time, job_node.node
FROM job
JOIN job_node ON job_node.job_key = job.job_key
LEFT JOIN session ON session.session_id = job_node.session_id;

-- All samples.
CREATE VIEW metrics AS
SELECT samples.time AS timestamp, ltrim(series.measured_node, '/') AS device_id,
       series.metric AS metric_id, samples.value,
       CASE WHEN series.job_id IS NULL THEN series.labels
            ELSE json_set(series.labels, '$.job_id', series.job_id) END AS labels
FROM samples JOIN series ON series.series_id = samples.series_id;

-- The samples of a job's own series, and those of its nodes' series while it ran there. The clock of a node
-- may have been set, therefore an hour more of the job's own. The series of a device outside the nodes are
-- those of the node that it serves; their times are not by the clock of that node.
CREATE VIEW metrics_by_job AS
SELECT job.job_id, samples.time - coalesce(session.clock_offset_us * 1000, 0) AS timestamp, series.node AS device_id, series.metric AS metric_id, samples.value,
       series.labels, job.started AS start_time, job.ended AS stop_time
FROM job
JOIN job_node ON job_node.job_key = job.job_key
LEFT JOIN session ON session.session_id = job_node.session_id
JOIN series ON series.job_key = job.job_key AND series.node = job_node.node
JOIN samples ON samples.series_id = series.series_id
    AND samples.time >= job_node.started - 3600000000000
    AND samples.time <= coalesce(job_node.ended + 3600000000000, 9223372036854775807)
UNION ALL
SELECT job.job_id, samples.time - CASE WHEN series.node = series.measured_node THEN coalesce(session.clock_offset_us * 1000, 0) ELSE 0 END, series.measured_node, series.metric, samples.value, series.labels, job.started, job.ended
FROM job
JOIN job_node ON job_node.job_key = job.job_key
LEFT JOIN session ON session.session_id = job_node.session_id
JOIN series ON series.measured_node = job_node.node AND series.job_key IS NULL
JOIN samples ON samples.series_id = series.series_id
    AND samples.time >= job_node.started - CASE WHEN series.node = series.measured_node THEN 0 ELSE coalesce(session.clock_offset_us * 1000, 0) END
    AND samples.time <= coalesce(job_node.ended - CASE WHEN series.node = series.measured_node THEN 0 ELSE coalesce(session.clock_offset_us * 1000, 0) END, 9223372036854775807);

-- The buckets of the histograms of these series' windows.
CREATE VIEW histograms_by_job AS
SELECT job.job_id, bucket.time - coalesce(session.clock_offset_us * 1000, 0) AS timestamp, series.node AS device_id, series.metric AS metric_id,
       bucket.least, bucket.count, series.labels, job.started AS start_time, job.ended AS stop_time
FROM job
JOIN job_node ON job_node.job_key = job.job_key
LEFT JOIN session ON session.session_id = job_node.session_id
JOIN series ON series.job_key = job.job_key AND series.node = job_node.node
JOIN window_histogram AS bucket ON bucket.job_key = job.job_key AND bucket.series_id = series.series_id
UNION ALL
SELECT job.job_id, bucket.time - coalesce(session.clock_offset_us * 1000, 0), series.node, series.metric, bucket.least, bucket.count,
       series.labels, job.started, job.ended
FROM job
JOIN job_node ON job_node.job_key = job.job_key
LEFT JOIN session ON session.session_id = job_node.session_id
JOIN series ON series.node = job_node.node AND series.job_key IS NULL
JOIN window_histogram AS bucket ON bucket.job_key IS NULL AND bucket.series_id = series.series_id
    AND bucket.time >= job_node.started AND bucket.time <= coalesce(job_node.ended, 9223372036854775807);

-- Kwollect's devices may have a second name; those of Polymeter are nodes and have one.
CREATE VIEW metrics_by_device AS
SELECT timestamp, device_id, metric_id, value, labels FROM metrics;

-- One value per minute and series: of counters the greatest, of others the mean.
CREATE VIEW metrics_summary AS
SELECT bucket.time AS timestamp, ltrim(series.measured_node, '/') AS device_id,
       series.metric AS metric_id,
       CASE metric.kind WHEN 'counter' THEN bucket.max ELSE bucket.sum / bucket.parts END AS value,
       CASE WHEN series.job_id IS NULL THEN series.labels
            ELSE json_set(series.labels, '$.job_id', series.job_id) END AS labels
FROM samples_1min AS bucket
JOIN series ON series.series_id = bucket.series_id
JOIN metric ON metric.metric = series.metric;

-- The minutes of `rollup_1min`, with the samples behind them.
CREATE VIEW polymeter_computed_minute AS
SELECT series_id, time,
       max(bucket.max, coalesce((
           SELECT max(CASE WHEN sum IS NULL THEN value ELSE samples.max END) FROM samples
           WHERE samples.series_id = bucket.series_id AND samples.time >= bucket.time AND samples.time < bucket.time + 60000000000
               AND samples.rowid > (SELECT samples_rowid FROM rollup WHERE relation = 'samples_1min')), bucket.max)) AS max,
       coalesce((
           SELECT CASE WHEN max(is_recent) THEN avg(mean) END FROM (
               SELECT sum(sum) / sum(count) AS mean, max(is_recent) AS is_recent FROM (
                   SELECT time, sum, count, 0 AS is_recent FROM rollup_10s
                   WHERE rollup_10s.series_id = bucket.series_id AND rollup_10s.time >= bucket.time AND rollup_10s.time < bucket.time + 60000000000
                   UNION ALL
                   SELECT time - time % 10000000000, coalesce(sum, value * coalesce(count, 1)), coalesce(count, 1), 1 FROM samples
                   WHERE samples.series_id = bucket.series_id AND samples.time >= bucket.time AND samples.time < bucket.time + 60000000000
                       AND value IS NOT NULL AND samples.rowid > (SELECT samples_rowid FROM rollup WHERE relation = 'samples_1min')
               ) GROUP BY time
           )), bucket.sum / bucket.parts) AS mean
FROM rollup_1min AS bucket;

-- The minutes whose samples are all behind, each found by its first sample, whose time is `part_time`.
CREATE VIEW polymeter_recent_minute AS
SELECT series_id, part.time AS part_time, part.time - part.time % 60000000000 AS time,
       (SELECT max(CASE WHEN sum IS NULL THEN value ELSE max END) FROM samples
           WHERE samples.series_id = part.series_id AND samples.time >= part.time - part.time % 60000000000
               AND samples.time < part.time - part.time % 60000000000 + 60000000000
               AND samples.rowid > (SELECT samples_rowid FROM rollup WHERE relation = 'samples_1min')) AS max,
       (SELECT avg(mean) FROM (
           SELECT sum(coalesce(sum, value * coalesce(count, 1))) / sum(coalesce(count, 1)) AS mean FROM samples
           WHERE samples.series_id = part.series_id AND samples.time >= part.time - part.time % 60000000000
               AND samples.time < part.time - part.time % 60000000000 + 60000000000
               AND samples.rowid > (SELECT samples_rowid FROM rollup WHERE relation = 'samples_1min')
           GROUP BY samples.time - samples.time % 10000000000)) AS mean
FROM samples AS part
WHERE part.value IS NOT NULL AND part.rowid > (SELECT samples_rowid FROM rollup WHERE relation = 'samples_1min')
    AND NOT EXISTS (
        SELECT 1 FROM rollup_1min AS bucket
        WHERE bucket.series_id = part.series_id AND bucket.time = part.time - part.time % 60000000000)
    AND NOT EXISTS (
        SELECT 1 FROM samples
        WHERE samples.series_id = part.series_id AND samples.time >= part.time - part.time % 60000000000
            AND samples.time <= part.time AND samples.value IS NOT NULL
            AND samples.rowid > (SELECT samples_rowid FROM rollup WHERE relation = 'samples_1min')
            AND (samples.time < part.time OR samples.rowid < part.rowid));

-- The same of a job. A condition on the job reaches each part: the minutes that are computed, and those
-- behind.
CREATE VIEW metrics_by_job_summary AS
SELECT job.job_id, bucket.time - coalesce(session.clock_offset_us * 1000, 0) AS timestamp, series.node AS device_id, series.metric AS metric_id,
       CASE metric.kind WHEN 'counter' THEN bucket.max ELSE bucket.mean END AS value,
       series.labels, job.started AS start_time, job.ended AS stop_time
FROM job
JOIN job_node ON job_node.job_key = job.job_key
LEFT JOIN session ON session.session_id = job_node.session_id
JOIN series ON series.job_key = job.job_key AND series.node = job_node.node
JOIN metric ON metric.metric = series.metric
JOIN polymeter_computed_minute AS bucket ON bucket.series_id = series.series_id
    AND bucket.time >= job_node.started - 3600000000000
    AND bucket.time <= coalesce(job_node.ended + 3600000000000, 9223372036854775807)
UNION ALL
SELECT job.job_id, bucket.time - coalesce(session.clock_offset_us * 1000, 0), series.node, series.metric,
       CASE metric.kind WHEN 'counter' THEN bucket.max ELSE bucket.mean END,
       series.labels, job.started, job.ended
FROM job
JOIN job_node ON job_node.job_key = job.job_key
LEFT JOIN session ON session.session_id = job_node.session_id
JOIN series ON series.job_key = job.job_key AND series.node = job_node.node
JOIN metric ON metric.metric = series.metric
JOIN polymeter_recent_minute AS bucket ON bucket.series_id = series.series_id
    AND bucket.part_time >= job_node.started - 3600000000000
    AND bucket.time >= job_node.started - 3600000000000
    AND bucket.time <= coalesce(job_node.ended + 3600000000000, 9223372036854775807)
UNION ALL
SELECT job.job_id, bucket.time - CASE WHEN series.node = series.measured_node THEN coalesce(session.clock_offset_us * 1000, 0) ELSE 0 END, series.measured_node, series.metric,
       CASE metric.kind WHEN 'counter' THEN bucket.max ELSE bucket.mean END,
       series.labels, job.started, job.ended
FROM job
JOIN job_node ON job_node.job_key = job.job_key
LEFT JOIN session ON session.session_id = job_node.session_id
JOIN series ON series.measured_node = job_node.node AND series.job_key IS NULL
JOIN metric ON metric.metric = series.metric
JOIN polymeter_computed_minute AS bucket ON bucket.series_id = series.series_id
    AND bucket.time >= job_node.started - CASE WHEN series.node = series.measured_node THEN 0 ELSE coalesce(session.clock_offset_us * 1000, 0) END
    AND bucket.time <= coalesce(job_node.ended - 60000000000 - CASE WHEN series.node = series.measured_node THEN 0 ELSE coalesce(session.clock_offset_us * 1000, 0) END, 9223372036854775807)
UNION ALL
SELECT job.job_id, bucket.time - CASE WHEN series.node = series.measured_node THEN coalesce(session.clock_offset_us * 1000, 0) ELSE 0 END, series.measured_node, series.metric,
       CASE metric.kind WHEN 'counter' THEN bucket.max ELSE bucket.mean END,
       series.labels, job.started, job.ended
FROM job
JOIN job_node ON job_node.job_key = job.job_key
LEFT JOIN session ON session.session_id = job_node.session_id
JOIN series ON series.measured_node = job_node.node AND series.job_key IS NULL
JOIN metric ON metric.metric = series.metric
JOIN polymeter_recent_minute AS bucket ON bucket.series_id = series.series_id
    AND bucket.part_time >= job_node.started - CASE WHEN series.node = series.measured_node THEN 0 ELSE coalesce(session.clock_offset_us * 1000, 0) END
    AND bucket.time >= job_node.started - CASE WHEN series.node = series.measured_node THEN 0 ELSE coalesce(session.clock_offset_us * 1000, 0) END
    AND bucket.time <= coalesce(job_node.ended - 60000000000 - CASE WHEN series.node = series.measured_node THEN 0 ELSE coalesce(session.clock_offset_us * 1000, 0) END, 9223372036854775807);

CREATE VIEW metrics_by_device_summary AS
SELECT timestamp, device_id, metric_id, value, labels FROM metrics_summary;

CREATE VIEW metric_units AS SELECT metric AS metric_id, unit, kind FROM metric;

-- What users' leases and requests sample at this time in jobs that run. A metric may be promoted for the job,
-- for its steps and for its tasks, at different times.
CREATE VIEW promoted_metrics_job AS
SELECT DISTINCT job.job_id, job_node.node, change.metric AS metric_id
FROM job_node
JOIN job ON job.job_key = job_node.job_key
JOIN plan_change AS change ON change.node = job_node.node AND change.job_key = job_node.job_key
    AND change.time >= job_node.started - 3600000000000
WHERE job_node.ended IS NULL AND (change.cause IN ('lease', 'registration', 'governor') OR change.cause = 'refresh_interval' AND change.until IS NOT NULL) AND change.new_period_us IS NOT NULL
    AND (change.until IS NULL OR change.until > CAST(strftime('%s', 'now') AS INTEGER) * 1000000000)
    AND NOT EXISTS (
        SELECT 1 FROM plan_change AS later
        WHERE later.node = change.node AND later.job_key = change.job_key AND later.metric = change.metric
            AND later.level IS change.level AND later.time > change.time AND later.cause <> 'refused'
    );

CREATE VIEW promoted_metrics AS
SELECT DISTINCT node AS device_id, metric_id FROM promoted_metrics_job;

-- The samples of call stacks. `stack`: the functions from the outermost to the innermost, which `function`
-- is, separated by semicolons.
CREATE VIEW stacks AS
SELECT job.job_id, part.time - coalesce(session.clock_offset_us * 1000, 0) AS timestamp, part.node AS device_id,
       part.metric AS metric_id, sample.process, innermost.name AS function, innermost.module, (
           WITH RECURSIVE caller (parent_id, stack, depth) AS (
               SELECT first.parent_id, replace(coalesce(called.name, '[' || coalesce(trim(called.module, '[]'), 'unknown') || ']'), ';', ':'), 1
               FROM stack_node AS first JOIN stack_function AS called
                   ON called.job_key = first.job_key AND called.function_id = first.function_id
               WHERE first.job_key = sample.job_key AND first.stack_id = sample.stack_id
               UNION ALL
               SELECT next.parent_id, replace(coalesce(called.name, '[' || coalesce(trim(called.module, '[]'), 'unknown') || ']'), ';', ':') || ';' || caller.stack, depth + 1
               FROM caller JOIN stack_node AS next ON next.job_key = sample.job_key AND next.stack_id = caller.parent_id
               JOIN stack_function AS called ON called.job_key = next.job_key AND called.function_id = next.function_id
               WHERE depth < 1024)
           SELECT stack FROM caller ORDER BY depth DESC LIMIT 1
       ) AS stack, sample.count AS samples, sample.count * part.period_us AS time_us
FROM stack_interval AS part
JOIN stack_sample AS sample
    ON sample.job_key = part.job_key AND sample.time = part.time AND sample.interval_id = part.interval_id
JOIN job ON job.job_key = part.job_key
LEFT JOIN job_node ON job_node.job_key = part.job_key AND job_node.node = part.node
LEFT JOIN session ON session.session_id = job_node.session_id
LEFT JOIN stack_node AS node ON node.job_key = sample.job_key AND node.stack_id = sample.stack_id
LEFT JOIN stack_function AS innermost
    ON innermost.job_key = sample.job_key AND innermost.function_id = node.function_id;
