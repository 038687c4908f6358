-- Version 3 for SQLite: what schedulers tell of jobs. Mirrors postgres_3.sql.

ALTER TABLE job ADD COLUMN account text;
ALTER TABLE job ADD COLUMN queue text;
-- As the scheduler writes them; the nodes on which the job was followed are in job_node.
ALTER TABLE job ADD COLUMN nodes text;
ALTER TABLE job ADD COLUMN cores INTEGER;
ALTER TABLE job ADD COLUMN state text;
ALTER TABLE job ADD COLUMN exit_code INTEGER;
ALTER TABLE job ADD COLUMN exit_signal INTEGER;
