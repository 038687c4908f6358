-- Kwollect's functions.

-- Kwollect gives times as seconds since the epoch or as text.
CREATE FUNCTION polymeter_parse_time(text) RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS $$
SELECT CASE WHEN $1 ~ '^[+-]?[0-9]+([.][0-9]*)?$' THEN to_timestamp($1::float8) ELSE nullif($1, '')::timestamptz END
$$;

-- The metrics of a job, or of nodes. The statement that it makes has constants for times, so that the planner
-- leaves chunks and partitions out, and it reads the views above with the rights of the user.
CREATE FUNCTION polymeter_get_metrics(job text, devices text, metrics text, start_time text, end_time text, summary boolean,
                                      as_rate boolean)
RETURNS SETOF metrics LANGUAGE plpgsql STABLE SET jit = off AS $$
DECLARE
    names text[] := ARRAY(
        SELECT DISTINCT name FROM unnest(string_to_array(devices, ',')) AS given
        CROSS JOIN LATERAL (VALUES (trim(given)), (split_part(trim(given), '.', 1))) AS names (name)
        WHERE name <> ''
    );
    lower timestamptz := polymeter_parse_time(start_time);
    upper timestamptz := polymeter_parse_time(end_time);
    source text := 'metrics';
    conditions text := '';
    statement text;
BEGIN
    IF job IS NOT NULL THEN
        source := 'metrics_by_job';
        conditions := format(' AND job_id = %L', job);
        SELECT coalesce(lower, min(run.start_time) - interval '1 hour'),
               coalesce(upper, max(coalesce(run.stop_time, now())) + interval '1 hour')
        INTO lower, upper FROM nodetime_by_job AS run WHERE run.job_id = job;
    ELSIF names = '{}' THEN
        RAISE EXCEPTION 'Missing ''devices'', ''nodes'' or ''job_id'' argument' USING ERRCODE = 'invalid_parameter_value';
    ELSE
        upper := coalesce(upper, lower + interval '5 minutes', now());
        lower := coalesce(lower, upper - interval '5 minutes');
    END IF;
    IF names <> '{}' THEN
        conditions := conditions || format(' AND device_id = ANY (%L::text[])', names);
    END IF;
    IF metrics <> '' THEN
        conditions := conditions || format(' AND metric_id = ANY (string_to_array(%L, '',''))', metrics);
    END IF;
    IF summary THEN
        source := source || '_summary';
    END IF;
    statement := format('SELECT timestamp, device_id, metric_id, value, labels FROM %I WHERE timestamp >= %L AND timestamp <= %L',
                        source, lower, upper) || conditions;
    IF as_rate THEN
        -- A counter that became smaller began again at 0.
        statement := format(
            'SELECT timestamp, device_id, metric_id,
                    CASE WHEN value < earlier AND kind = ''counter'' THEN value ELSE value - earlier END
                        / nullif(extract(epoch FROM timestamp - earlier_timestamp), 0)::float8,
                    labels
             FROM (SELECT picked.*, lag(value) OVER line AS earlier, lag(timestamp) OVER line AS earlier_timestamp
                   FROM (%s) AS picked
                   WINDOW line AS (PARTITION BY device_id, metric_id, labels ORDER BY timestamp)) AS lines
             LEFT JOIN metric_units USING (metric_id)', statement);
    END IF;
    RETURN QUERY EXECUTE statement || ' ORDER BY timestamp';
END
$$;

-- As in Kwollect. Job ids that are no integers are given as `job`: PostgREST tells functions apart by the
-- names of arguments.
CREATE FUNCTION get_metrics(job_id integer DEFAULT NULL, nodes text DEFAULT NULL, devices text DEFAULT NULL,
                            metrics text DEFAULT NULL, start_time text DEFAULT NULL, end_time text DEFAULT NULL,
                            summary boolean DEFAULT false, as_rate boolean DEFAULT false)
RETURNS SETOF metrics LANGUAGE sql STABLE AS $$
SELECT * FROM polymeter_get_metrics(job_id::text, concat_ws(',', nodes, devices), metrics, start_time, end_time, summary, as_rate)
$$;
CREATE FUNCTION get_metrics(job text, nodes text DEFAULT NULL, devices text DEFAULT NULL, metrics text DEFAULT NULL,
                            start_time text DEFAULT NULL, end_time text DEFAULT NULL, summary boolean DEFAULT false,
                            as_rate boolean DEFAULT false)
RETURNS SETOF metrics LANGUAGE sql STABLE AS $$
SELECT * FROM polymeter_get_metrics(job, concat_ws(',', nodes, devices), metrics, start_time, end_time, summary, as_rate)
$$;

-- The metrics that were sampled in the minute before `at`. `params` may have `job_id`, or `devices`, an
-- array.
CREATE FUNCTION available_metrics(at timestamptz DEFAULT now(), params jsonb DEFAULT '{}')
RETURNS TABLE (device_id text, metric_id text) LANGUAGE plpgsql STABLE SET jit = off AS $$
DECLARE
    source text := 'metrics';
    conditions text := '';
    stop_time timestamptz;
BEGIN
    -- PostgREST passes an argument of a URL as a string.
    IF jsonb_typeof(params) = 'string' THEN
        params := (params #>> '{}')::jsonb;
    END IF;
    IF params ->> 'job_id' IS NOT NULL THEN
        SELECT max(coalesce(run.stop_time, now())) INTO stop_time FROM nodetime_by_job AS run
        WHERE run.job_id = params ->> 'job_id';
        at := least(at, stop_time);
        source := 'metrics_by_job';
        conditions := format(' AND job_id = %L', params ->> 'job_id');
    ELSIF params -> 'devices' IS NOT NULL THEN
        IF jsonb_typeof(params -> 'devices') <> 'array' THEN
            RAISE EXCEPTION 'Cannot parse params->devices, should be JSON array' USING ERRCODE = 'invalid_parameter_value';
        END IF;
        conditions := format(' AND device_id = ANY (%L::text[])', ARRAY(SELECT jsonb_array_elements_text(params -> 'devices')));
    END IF;
    RETURN QUERY EXECUTE format(
        'SELECT device_id, metric_id FROM %I WHERE timestamp > %L AND timestamp <= %L', source, at - interval '1 minute', at)
        || conditions
        || ' GROUP BY 1, 2 ORDER BY substring(device_id FROM ''^[^0-9]*''), substring(device_id FROM ''[0-9]+'')::numeric, 1, 2';
END
$$;

-- Schedulers call this at the begin and the end of a job, so that Kwollect fills the table. The view is
-- always current.
CREATE FUNCTION update_promoted_metrics() RETURNS SETOF promoted_metrics LANGUAGE sql STABLE AS $$
SELECT * FROM promoted_metrics
$$;

-- Kwollect has its functions in the schema `api`, which its PostgREST shows.
DO $$
BEGIN
    CREATE SCHEMA IF NOT EXISTS api;
    EXECUTE format(
        'CREATE FUNCTION api.get_metrics(job_id integer DEFAULT NULL, nodes text DEFAULT NULL, devices text DEFAULT NULL,
                                         metrics text DEFAULT NULL, start_time text DEFAULT NULL, end_time text DEFAULT NULL,
                                         summary boolean DEFAULT false, as_rate boolean DEFAULT false)
         RETURNS SETOF %1$I.metrics LANGUAGE sql STABLE AS
         ''SELECT * FROM %1$I.get_metrics(job_id, nodes, devices, metrics, start_time, end_time, summary, as_rate)'';
         CREATE FUNCTION api.get_metrics(job text, nodes text DEFAULT NULL, devices text DEFAULT NULL,
                                         metrics text DEFAULT NULL, start_time text DEFAULT NULL, end_time text DEFAULT NULL,
                                         summary boolean DEFAULT false, as_rate boolean DEFAULT false)
         RETURNS SETOF %1$I.metrics LANGUAGE sql STABLE AS
         ''SELECT * FROM %1$I.get_metrics(job, nodes, devices, metrics, start_time, end_time, summary, as_rate)'';
         CREATE FUNCTION api.available_metrics(at timestamptz DEFAULT now(), params jsonb DEFAULT ''{}'')
         RETURNS TABLE (device_id text, metric_id text) LANGUAGE sql STABLE AS
         ''SELECT * FROM %1$I.available_metrics(at, params)'';
         CREATE FUNCTION api.update_promoted_metrics() RETURNS SETOF %1$I.promoted_metrics LANGUAGE sql STABLE AS
         ''SELECT * FROM %1$I.update_promoted_metrics()''',
        current_schema());
EXCEPTION
    WHEN insufficient_privilege OR duplicate_function THEN
        RAISE NOTICE 'the functions of the schema api are not created: %', SQLERRM;
END
$$;
