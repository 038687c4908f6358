-- The views for users, bounded by the times of jobs. Their names and columns are those of Kwollect, which
-- PostgREST and dashboards expect.
--
-- A view shows everything to those who may read the table `samples`, and to others their own jobs and those of
-- accounts that they manage, which count as own. It reads the own jobs through a function with the rights of
-- the tables' owner, so that neither plans nor statistics tell of other jobs. The barrier keeps functions of
-- users away from rows that they must not see. It has an effect only where the outermost part of a view is not
-- a UNION ALL: the planner flattens such a union without regard to the barrier.

-- Kwollect's job ids are integers, and its users write `job_id = 4242`. The function is inlined: indexes are
-- used.
CREATE FUNCTION polymeter_text_equals(text, int8) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
'SELECT $1 OPERATOR(pg_catalog.=) $2::pg_catalog.text';
CREATE FUNCTION polymeter_text_equals(int8, text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
'SELECT $1::pg_catalog.text OPERATOR(pg_catalog.=) $2';
CREATE OPERATOR = (FUNCTION = polymeter_text_equals, LEFTARG = text, RIGHTARG = int8, COMMUTATOR = =);
CREATE OPERATOR = (FUNCTION = polymeter_text_equals, LEFTARG = int8, RIGHTARG = text, COMMUTATOR = =);

-- The name of the user who sees the rows: the role that PostgREST or `SET ROLE` set, or the user of the
-- session. Unlike `current_user` it is the same within functions that run with other rights.
CREATE FUNCTION polymeter_user_name() RETURNS text LANGUAGE sql STABLE PARALLEL RESTRICTED AS $$
SELECT CASE pg_catalog.current_setting('role') WHEN 'none' THEN session_user::pg_catalog.text
            ELSE pg_catalog.current_setting('role') END
$$;

-- The accounts that the user manages. Only functions with the rights of the tables' owner can call it.
CREATE FUNCTION polymeter_managed_accounts() RETURNS text[] LANGUAGE sql STABLE PARALLEL RESTRICTED AS $$
SELECT coalesce(array_agg(account), '{}') FROM account_manager WHERE manager = polymeter_user_name()
$$;

-- True for a job of the user, or of an account that the user manages. The one place where it is decided which
-- jobs a user sees. It is inlined: indexes are used.
CREATE FUNCTION polymeter_is_own(owner text, account text) RETURNS boolean LANGUAGE sql STABLE PARALLEL RESTRICTED AS $$
SELECT owner = polymeter_user_name() OR account = ANY (polymeter_managed_accounts())
$$;

-- The jobs on nodes whose clocks were ahead of the collector's or behind by much, and the times that the
-- views of jobs have in place of those of the nodes. Joins reach into both: the times of a job are computed
-- without those of others.
CREATE VIEW polymeter_skewed_place AS
SELECT place.job_key FROM session AS skewed JOIN job_node AS place ON place.node = skewed.node AND place.session_id = skewed.session_id
WHERE skewed.clock_offset_us IS NOT NULL;

CREATE VIEW polymeter_skewed_job AS
SELECT job_key, corrected.started, corrected.ended FROM job
CROSS JOIN LATERAL (
    SELECT min(place.started - coalesce(clock_offset_us, 0) * interval '1 microsecond') AS started,
           max(place.ended - coalesce(clock_offset_us, 0) * interval '1 microsecond') AS ended
    FROM job_node AS place LEFT JOIN session USING (session_id) WHERE place.job_key = job.job_key
) AS corrected
WHERE EXISTS (SELECT FROM polymeter_skewed_place AS place WHERE place.job_key = job.job_key);

-- The jobs that the user sees, and the nodes on which they ran. The command of a run is its owner's.
-- `clock_offset`: the time by which the clock of the node, in the last session that followed the job there,
-- was ahead of the collector's; null if it was not by much. The views of a job subtract it, so that the times
-- of its nodes can be compared.
CREATE FUNCTION polymeter_own_jobs() RETURNS SETOF job
LANGUAGE sql STABLE SECURITY DEFINER PARALLEL RESTRICTED ROWS 100 AS $$
SELECT job_key, job_id, cluster, owner, owner_uid, coalesce(skewed.started, job.started),
       CASE WHEN job.ended IS NOT NULL THEN coalesce(skewed.ended, job.ended) END, account, queue, nodes, cores, state, exit_code,
       exit_signal, name, display_id, time_limit_s, memory_bytes, gpus, restarts, unread,
       CASE WHEN owner = polymeter_user_name() THEN run END, scheduler
FROM job LEFT JOIN polymeter_skewed_job AS skewed USING (job_key) WHERE polymeter_is_own(owner, account)
$$;

CREATE FUNCTION polymeter_own_job_nodes()
RETURNS TABLE (job_key int8, job_id text, job_started timestamptz, job_ended timestamptz, node text,
               started timestamptz, ended timestamptz, clock_offset interval)
LANGUAGE sql STABLE SECURITY DEFINER PARALLEL RESTRICTED ROWS 100 AS $$
SELECT job.job_key, job.job_id, job.started, job.ended, job_node.node, job_node.started, job_node.ended,
       session.clock_offset_us * interval '1 microsecond'
FROM job JOIN job_node USING (job_key) LEFT JOIN session USING (session_id)
WHERE polymeter_is_own(job.owner, job.account)
$$;

-- The nodes of the jobs that the user sees.
CREATE VIEW polymeter_visible_job_node AS
SELECT job.job_key, job.job_id, job.started AS job_started, job.ended AS job_ended, job_node.node, job_node.started, job_node.ended,
       session.clock_offset_us * interval '1 microsecond' AS clock_offset
FROM job JOIN job_node USING (job_key) LEFT JOIN session USING (session_id)
WHERE (SELECT has_table_privilege('samples'::regclass, 'SELECT'))
UNION ALL
SELECT job_key, job_id, job_started, job_ended, node, started, ended, clock_offset
FROM polymeter_own_job_nodes() WHERE NOT (SELECT has_table_privilege('samples'::regclass, 'SELECT'));

CREATE VIEW jobs WITH (security_barrier) AS
SELECT job_key, job_id, cluster, owner, owner_uid, started, ended, account, queue, nodes, cores, state, exit_code, exit_signal,
       name, display_id, time_limit_s, memory_bytes, gpus, restarts, unread, run, scheduler FROM (
    -- For expressions the planner has no statistics, which `EXPLAIN` would show as a number of jobs.
    SELECT job_key, job_id, cluster, owner || '' AS owner, owner_uid + 0 AS owner_uid, started, ended, account || '' AS account,
           queue, nodes || '' AS nodes, cores, state, exit_code, exit_signal, name || '' AS name, display_id || '' AS display_id,
           time_limit_s, memory_bytes, gpus, restarts, unread, run, scheduler
    FROM job WHERE (SELECT has_table_privilege('samples'::regclass, 'SELECT'))
        AND NOT EXISTS (SELECT FROM polymeter_skewed_place AS place WHERE place.job_key = job.job_key)
    UNION ALL
    SELECT job_key, job_id, cluster, owner || '', owner_uid + 0, skewed.started, CASE WHEN job.ended IS NOT NULL THEN skewed.ended END,
           account || '', queue, nodes || '', cores, state, exit_code, exit_signal, name || '', display_id || '', time_limit_s,
           memory_bytes, gpus, restarts, unread, run, scheduler
    FROM polymeter_skewed_job AS skewed JOIN job USING (job_key) WHERE (SELECT has_table_privilege('samples'::regclass, 'SELECT'))
    UNION ALL
    SELECT job_key, job_id, cluster, owner, owner_uid, started, ended, account, queue, nodes, cores, state, exit_code, exit_signal,
           name, display_id, time_limit_s, memory_bytes, gpus, restarts, unread, run, scheduler
    FROM polymeter_own_jobs() WHERE NOT (SELECT has_table_privilege('samples'::regclass, 'SELECT'))
) AS visible;

-- What jobs used that have ended, as their reports have it.
CREATE VIEW usage_by_job WITH (security_barrier) AS
SELECT run.job_key, run.job_id, run.started AS start_time, run.ended AS stop_time, used.elapsed_s, used.nodes, used.cores, used.cpu_s, used.cores_peak, used.memory_request_bytes,
       used.memory_used_bytes, used.memory_bound_bytes, used.gpus, used.gpus_used, used.gpu_s
FROM jobs AS run CROSS JOIN LATERAL (
    SELECT * FROM job_usage WHERE job_usage.job_key = run.job_key AND elapsed_s IS NOT NULL OFFSET 0
) AS used
WHERE run.ended IS NOT NULL;

-- The energy of these jobs by node and source.
CREATE VIEW energy_by_job WITH (security_barrier) AS
SELECT run.job_key, run.job_id, energy.node, energy.part, energy.source, energy.devices, energy.joules, energy.error_joules, energy.delay_s,
       energy.is_counted, CASE WHEN energy.is_estimate THEN 'estimated' ELSE 'measured' END AS method,
       run.started AS start_time, run.ended AS stop_time
FROM jobs AS run CROSS JOIN LATERAL (
    SELECT job_energy.* FROM job_usage JOIN job_energy USING (job_key)
    WHERE job_usage.job_key = run.job_key AND elapsed_s IS NOT NULL OFFSET 0
) AS energy
WHERE run.ended IS NOT NULL;

CREATE VIEW nodetime_by_job WITH (security_barrier) AS
SELECT job_id, started - coalesce(clock_offset, '0') AS start_time, ended - coalesce(clock_offset, '0') AS stop_time, node
FROM polymeter_visible_job_node;

-- The samples of a job's own series, and those of its nodes' series while it ran there. The clock of a node
-- may have been set, therefore an hour more of the job's own. The series of a device outside the nodes are
-- those of the node that it serves; their times are not by the clock of that node.
--
-- The union with nothing keeps the planner from joining all samples with all series: it reads the samples of
-- each series within the job's time, and conditions on the time still reach the samples. A value that has no
-- hash keeps the planner from caching the samples of a series, which would be in vain.
CREATE VIEW metrics_by_job WITH (security_barrier) AS
SELECT run.job_id, sample.time AS timestamp, series.node AS device_id, series.metric AS metric_id, sample.value,
       series.labels, run.job_started AS start_time, run.job_ended AS stop_time
FROM polymeter_visible_job_node AS run
CROSS JOIN LATERAL (
    SELECT run.started - interval '1 hour' AS job_lower,
           coalesce(run.ended, now()) + interval '1 hour' AS job_upper,
           coalesce(run.ended, now() + interval '1 hour') AS node_upper,
           coalesce(run.clock_offset, '0') AS ahead,
           NULL::json AS unhashable
    OFFSET 0
) AS bounds
CROSS JOIN LATERAL (
    SELECT series_id, node, metric, labels, bounds.job_lower AS lower, bounds.job_upper AS upper, run.clock_offset
    FROM series WHERE series.job_key = run.job_key AND series.node = run.node
    UNION ALL
    SELECT series_id, measured_node, metric, labels,
           CASE WHEN series.node = run.node THEN run.started ELSE run.started - bounds.ahead END,
           CASE WHEN series.node = run.node THEN bounds.node_upper ELSE bounds.node_upper - bounds.ahead END,
           CASE WHEN series.node = run.node THEN run.clock_offset END
    FROM series WHERE series.job_key IS NULL AND series.measured_node = run.node
) AS series
CROSS JOIN LATERAL (
    SELECT time, value FROM samples
    WHERE samples.series_id = series.series_id AND samples.time >= series.lower AND samples.time <= series.upper
        AND series.clock_offset IS NULL
    UNION ALL
    SELECT time - series.clock_offset, value FROM samples
    WHERE samples.series_id = series.series_id AND samples.time >= series.lower AND samples.time <= series.upper
        AND series.clock_offset IS NOT NULL
    UNION ALL
    SELECT NULL, NULL WHERE false AND bounds.unhashable IS NULL
) AS sample;

-- The buckets of the histograms of these series' windows.
CREATE VIEW histograms_by_job WITH (security_barrier) AS
SELECT run.job_id, bucket.time - coalesce(run.clock_offset, '0') AS timestamp, series.node AS device_id, series.metric AS metric_id,
       bucket.least, bucket.count, series.labels, run.job_started AS start_time, run.job_ended AS stop_time
FROM polymeter_visible_job_node AS run
CROSS JOIN LATERAL (
    SELECT run.started - interval '1 hour' AS job_lower,
           coalesce(run.ended, now()) + interval '1 hour' AS job_upper,
           coalesce(run.ended, now() + interval '1 hour') AS node_upper,
           NULL::json AS unhashable
    OFFSET 0
) AS bounds
CROSS JOIN LATERAL (
    SELECT series_id, node, metric, labels, series.job_key, bounds.job_lower AS lower, bounds.job_upper AS upper
    FROM series WHERE series.job_key = run.job_key AND series.node = run.node
    UNION ALL
    SELECT series_id, node, metric, labels, NULL, run.started, bounds.node_upper
    FROM series WHERE series.job_key IS NULL AND series.node = run.node
) AS series
CROSS JOIN LATERAL (
    SELECT time, least, count FROM window_histogram AS own
    WHERE own.job_key = series.job_key AND own.series_id = series.series_id AND own.time >= series.lower AND own.time <= series.upper
    UNION ALL
    SELECT time, least, count FROM window_histogram AS part
    WHERE part.job_key IS NULL AND series.job_key IS NULL AND part.series_id = series.series_id
        AND part.time >= series.lower AND part.time <= series.upper
    UNION ALL
    SELECT NULL, NULL, NULL WHERE false AND bounds.unhashable IS NULL
) AS bucket;

-- The times of the user's own jobs on their nodes, and, without a job, the times of nodes: each once even if
-- several jobs shared a node. `is_of_devices`: for the series of devices outside the nodes, whose times are
-- not by the clock of the node. Minutes of nodes are whole. OFFSET 0 keeps the planner from computing the times
-- for each series.
CREATE VIEW polymeter_own_time AS
SELECT job_key, job_id, node, false AS is_of_devices, started - interval '1 hour' AS lower,
       coalesce(ended, now()) + interval '1 hour' AS upper, coalesce(ended, now()) + interval '1 hour' AS minute_upper, NULL::json AS unhashable
FROM polymeter_own_job_nodes() WHERE NOT (SELECT has_table_privilege('samples'::regclass, 'SELECT'))
UNION ALL
SELECT NULL, NULL, node, is_of_devices, lower(span), upper(span), upper(span) - interval '1 min', NULL
FROM (
    SELECT node, is_of_devices, range_agg(tstzrange(started - ahead, coalesce(ended, now() + interval '1 hour') - ahead, '[]')) AS spans
    FROM polymeter_own_job_nodes()
    CROSS JOIN LATERAL (VALUES (false, interval '0'), (true, coalesce(clock_offset, '0'))) AS clock (is_of_devices, ahead)
    WHERE NOT (SELECT has_table_privilege('samples'::regclass, 'SELECT'))
    GROUP BY node, is_of_devices
) AS nodes CROSS JOIN LATERAL unnest(spans) AS span
OFFSET 0;

-- All samples; for users those of their own jobs, each once even if several of their jobs shared a node.
CREATE VIEW metrics WITH (security_barrier) AS
SELECT timestamp, device_id, metric_id, value, labels FROM (
    SELECT samples.time AS timestamp, ltrim(series.measured_node, '/') AS device_id,
           series.metric AS metric_id, samples.value,
           CASE WHEN series.job_id IS NULL THEN series.labels
                ELSE series.labels || jsonb_build_object('job_id', series.job_id) END AS labels
    FROM samples JOIN series USING (series_id) WHERE (SELECT has_table_privilege('samples'::regclass, 'SELECT'))
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
    CROSS JOIN LATERAL (
        SELECT time, value FROM samples
        WHERE samples.series_id = series.series_id AND samples.time >= run.lower AND samples.time <= run.upper
        UNION ALL
        SELECT NULL, NULL WHERE false AND run.unhashable IS NULL
    ) AS sample
) AS visible;

-- Kwollect's devices may have a second name; those of Polymeter are nodes and have one.
CREATE VIEW metrics_by_device AS
SELECT timestamp, device_id, metric_id, value, labels FROM metrics;

-- One value per minute and series: of counters the greatest, of others the mean. The relations of Kwollect's
-- functions with `summary`; conditions on the time reach the rollups.
CREATE VIEW metrics_by_job_summary WITH (security_barrier) AS
SELECT run.job_id, bucket.time AS timestamp, series.node AS device_id, series.metric AS metric_id,
       CASE series.kind WHEN 'counter' THEN bucket.max ELSE bucket.sum / bucket.parts END AS value,
       series.labels, run.job_started AS start_time, run.job_ended AS stop_time
FROM polymeter_visible_job_node AS run
CROSS JOIN LATERAL (
    SELECT run.started - interval '1 hour' AS job_lower,
           coalesce(run.ended, now()) + interval '1 hour' AS job_upper,
           coalesce(run.ended, now() + interval '1 hour') - interval '1 min' AS node_upper,
           coalesce(run.clock_offset, '0') AS ahead,
           NULL::json AS unhashable
    OFFSET 0
) AS bounds
CROSS JOIN LATERAL (
    SELECT series_id, node, series.metric, labels, kind, bounds.job_lower AS lower, bounds.job_upper AS upper, run.clock_offset
    FROM series JOIN metric ON metric.metric = series.metric
    WHERE series.job_key = run.job_key AND series.node = run.node
    UNION ALL
    SELECT series_id, measured_node, series.metric, labels, kind,
           CASE WHEN series.node = run.node THEN run.started ELSE run.started - bounds.ahead END,
           CASE WHEN series.node = run.node THEN bounds.node_upper ELSE bounds.node_upper - bounds.ahead END,
           CASE WHEN series.node = run.node THEN run.clock_offset END
    FROM series JOIN metric ON metric.metric = series.metric
    WHERE series.job_key IS NULL AND series.measured_node = run.node
) AS series
CROSS JOIN LATERAL (
    SELECT time, max(max) AS max, sum(sum) AS sum, sum(parts) AS parts FROM (
        SELECT time, max(max) AS max, sum(sum) / sum(weight) * max(parts) AS sum, max(parts) AS parts FROM polymeter_minute_part AS part
        WHERE part.series_id = series.series_id AND part.time >= series.lower AND part.time <= series.upper
            AND part.part_time >= series.lower AND part.part_time < series.upper + interval '1 min'
            AND series.clock_offset IS NULL
        GROUP BY time, part
    ) AS part GROUP BY time
    UNION ALL
    SELECT time - series.clock_offset, max(max), sum(sum), sum(parts) FROM (
        SELECT time, max(max) AS max, sum(sum) / sum(weight) * max(parts) AS sum, max(parts) AS parts FROM polymeter_minute_part AS part
        WHERE part.series_id = series.series_id AND part.time >= series.lower AND part.time <= series.upper
            AND part.part_time >= series.lower AND part.part_time < series.upper + interval '1 min'
            AND series.clock_offset IS NOT NULL
        GROUP BY time, part
    ) AS part GROUP BY time
    UNION ALL
    SELECT NULL, NULL, NULL, NULL WHERE false AND bounds.unhashable IS NULL
) AS bucket;

CREATE VIEW metrics_summary WITH (security_barrier) AS
SELECT timestamp, device_id, metric_id, value, labels FROM (
    SELECT bucket.time AS timestamp, ltrim(series.measured_node, '/') AS device_id,
           series.metric AS metric_id,
           CASE metric.kind WHEN 'counter' THEN bucket.max ELSE bucket.sum / bucket.parts END AS value,
           CASE WHEN series.job_id IS NULL THEN series.labels
                ELSE series.labels || jsonb_build_object('job_id', series.job_id) END AS labels
    FROM samples_1min AS bucket JOIN series USING (series_id) JOIN metric ON metric.metric = series.metric
    WHERE (SELECT has_table_privilege('samples'::regclass, 'SELECT'))
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
    CROSS JOIN LATERAL (
        SELECT time, max(max) AS max, sum(sum) AS sum, sum(parts) AS parts FROM (
            SELECT time, max(max) AS max, sum(sum) / sum(weight) * max(parts) AS sum, max(parts) AS parts FROM polymeter_minute_part AS part
            WHERE part.series_id = series.series_id AND part.time >= run.lower AND part.time <= run.minute_upper
                AND part.part_time >= run.lower AND part.part_time < run.minute_upper + interval '1 min'
            GROUP BY time, part
        ) AS part GROUP BY time
        UNION ALL
        SELECT NULL, NULL, NULL, NULL WHERE false AND run.unhashable IS NULL
    ) AS bucket
) AS visible;

CREATE VIEW metrics_by_device_summary AS
SELECT timestamp, device_id, metric_id, value, labels FROM metrics_summary;

-- The units and kinds of metrics. The names of metrics that users supplied are shown to those with jobs that
-- have them.
CREATE VIEW metric_units WITH (security_barrier) AS
SELECT metric AS metric_id, unit, kind FROM metric
WHERE (SELECT has_table_privilege('samples'::regclass, 'SELECT')) OR metric NOT LIKE 'user.%'
    OR metric IN (SELECT series.metric FROM polymeter_own_jobs() AS own JOIN series ON series.job_key = own.job_key);

-- Kwollect's promoted metrics are those that a job asked for. Here: what users' leases and requests sample at
-- this time in jobs that run. A metric may be promoted for the job, for its steps and for its tasks, at
-- different times.
CREATE VIEW promoted_metrics_job WITH (security_barrier) AS
SELECT DISTINCT run.job_id, run.node, change.metric AS metric_id
FROM polymeter_visible_job_node AS run
CROSS JOIN LATERAL (
    SELECT DISTINCT ON (metric, level) metric, cause, new_period_us, until FROM plan_change
    WHERE plan_change.node = run.node AND plan_change.time >= run.started - interval '1 hour'
        AND plan_change.job_key = run.job_key AND cause <> 'refused'
    ORDER BY metric, level, time DESC
) AS change
WHERE run.ended IS NULL AND (change.cause IN ('lease', 'registration', 'governor') OR change.cause = 'refresh_interval' AND change.until IS NOT NULL) AND change.new_period_us IS NOT NULL
    AND (change.until IS NULL OR change.until > now());

CREATE VIEW promoted_metrics AS
SELECT DISTINCT node AS device_id, metric_id FROM promoted_metrics_job;

-- The samples of call stacks of those jobs that are the user's own: like its command, the functions of a
-- program are its owner's. `stack`: the functions from the outermost to the innermost, which `function` is,
-- separated by semicolons.
CREATE VIEW stacks WITH (security_barrier) AS
SELECT visible.job_id, part.time - coalesce(session.clock_offset_us, 0) * interval '1 microsecond' AS timestamp,
       part.node AS device_id, part.metric AS metric_id, sample.process, innermost.name AS function, innermost.module, (
           WITH RECURSIVE caller (parent_id, function_id, depth) AS (
               SELECT first.parent_id, first.function_id, 1 FROM stack_node AS first
               WHERE first.job_key = sample.job_key AND first.stack_id = sample.stack_id
               UNION ALL
               SELECT next.parent_id, next.function_id, depth + 1
               FROM caller JOIN stack_node AS next ON next.job_key = sample.job_key AND next.stack_id = caller.parent_id
               WHERE depth < 1024)
           SELECT string_agg(replace(coalesce(of_caller.name, '[' || coalesce(trim(of_caller.module, '[]'), 'unknown') || ']'), ';', ':'), ';' ORDER BY depth DESC)
           FROM caller JOIN stack_function AS of_caller
               ON of_caller.job_key = sample.job_key AND of_caller.function_id = caller.function_id
       ) AS stack, sample.count AS samples, sample.count::numeric * part.period_us AS time_us
FROM (
    SELECT job_key, job_id FROM job WHERE (SELECT has_table_privilege('samples'::regclass, 'SELECT'))
    UNION ALL
    SELECT job_key, job_id FROM polymeter_own_jobs()
    WHERE owner = polymeter_user_name() AND NOT (SELECT has_table_privilege('samples'::regclass, 'SELECT'))
) AS visible
JOIN stack_interval AS part USING (job_key)
JOIN stack_sample AS sample
    ON sample.job_key = part.job_key AND sample.time = part.time AND sample.interval_id = part.interval_id
LEFT JOIN job_node ON job_node.job_key = part.job_key AND job_node.node = part.node
LEFT JOIN session ON session.session_id = job_node.session_id
LEFT JOIN stack_node AS node ON node.job_key = sample.job_key AND node.stack_id = sample.stack_id
LEFT JOIN stack_function AS innermost
    ON innermost.job_key = sample.job_key AND innermost.function_id = node.function_id;
