-- Version 3 for PostgreSQL and TimescaleDB: what schedulers tell of jobs. Mirrors sqlite_3.sql.

ALTER TABLE job ADD COLUMN account text;
ALTER TABLE job ADD COLUMN queue text;
-- As the scheduler writes them; the nodes on which the job was followed are in job_node.
ALTER TABLE job ADD COLUMN nodes text;
ALTER TABLE job ADD COLUMN cores int8;
ALTER TABLE job ADD COLUMN state text;
ALTER TABLE job ADD COLUMN exit_code int8;
ALTER TABLE job ADD COLUMN exit_signal int8;
