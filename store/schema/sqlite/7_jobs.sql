-- Version 7 for SQLite: names and requested resources of jobs.

ALTER TABLE job ADD COLUMN name text;
-- The id as the scheduler prints it, where it differs from `job_id`: `4009_1`, `4009+1`.
ALTER TABLE job ADD COLUMN display_id text;
ALTER TABLE job ADD COLUMN time_limit_s INTEGER;
-- On each node.
ALTER TABLE job ADD COLUMN memory_bytes INTEGER;
-- On all nodes.
ALTER TABLE job ADD COLUMN gpus INTEGER;
ALTER TABLE job ADD COLUMN restarts INTEGER;
CREATE INDEX job_by_display_id ON job (display_id) WHERE display_id IS NOT NULL;
