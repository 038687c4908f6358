-- Version 8 for SQLite: changes of the plan of steps and tasks.

-- `step` or `task` for a change of each step or task of the job; null for a whole job or a node. No row is rewritten.
ALTER TABLE plan_change_event ADD COLUMN level text;

DROP VIEW promoted_metrics;
DROP VIEW promoted_metrics_job;
DROP VIEW plan_change;

CREATE VIEW plan_change AS
SELECT time, node, job_key, job_id, metric, old_period_us, new_period_us, cause, actor, until, reason, level
FROM plan_change_event JOIN plan_change_set_member ON plan_change_set_member.set_id = plan_change_event.set_id;

-- A metric may be promoted for the job, for its steps and for its tasks, at different times.
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
