-- Version 7 for SQLite: the views for users, bounded by the times of jobs.

-- The indexes of the program's own reads.

CREATE INDEX job_by_start ON job (started, job_key);
CREATE INDEX plan_change_by_job ON plan_change (job_key, time) WHERE job_key IS NOT NULL;
CREATE INDEX loss_by_time ON loss (time);
CREATE INDEX loss_without_source ON loss (node, last_time) WHERE source IS NULL;
