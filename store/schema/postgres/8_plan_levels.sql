-- Version 8 for PostgreSQL and TimescaleDB: changes of the plan of steps and tasks.

-- `step` or `task` for a change of each step or task of the job; null for a whole job or a node. No row is rewritten.
ALTER TABLE plan_change_event ADD COLUMN level text;

CREATE OR REPLACE VIEW plan_change AS
SELECT time, node, job_key, job_id, metric, old_period_us, new_period_us, cause, actor, until, reason, level
FROM plan_change_event JOIN plan_change_set_member USING (set_id);

-- A metric may be promoted for the job, for its steps and for its tasks, at different times.
CREATE OR REPLACE VIEW promoted_metrics_job WITH (security_barrier) AS
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
