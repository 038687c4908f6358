-- Version 8 for PostgreSQL and TimescaleDB: the jobs of a user, and whether jobs had their nodes alone.

CREATE INDEX job_by_owner_uid ON job (owner_uid, started, job_key);

-- The times of jobs on their nodes. A node is shared if another job ran there for more than 5 s meanwhile, of the thousand that started before
-- the job and of those that started later. A shorter overlap does not count: the agent notices the end of a job late.
CREATE VIEW polymeter_job_node AS
SELECT own.job_key, own.node, own.started, own.ended,
       coalesce(own.started < (
           SELECT max(coalesce(earlier.ended, 'infinity')) FROM (
               SELECT other.ended FROM job_node AS other
               WHERE other.node = own.node AND other.started <= own.started AND other.job_key <> own.job_key
               ORDER BY other.started DESC LIMIT 1000
           ) AS earlier) - interval '5 s', false)
       OR coalesce((SELECT min(later.started) FROM job_node AS later WHERE later.node = own.node AND later.started > own.started)
                   < coalesce(own.ended, 'infinity') - interval '5 s', false) AS is_shared
FROM job_node AS own;
