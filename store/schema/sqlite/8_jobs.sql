-- Version 8 for SQLite: the jobs of a user, and whether jobs had their nodes alone.

CREATE INDEX job_by_owner_uid ON job (owner_uid, started, job_key);

-- As in PostgreSQL.
CREATE VIEW polymeter_job_node AS
SELECT own.job_key, own.node, own.started, own.ended,
       coalesce(own.started < (
           SELECT max(coalesce(earlier.ended, 9223372036854775807)) FROM (
               SELECT other.ended FROM job_node AS other
               WHERE other.node = own.node AND other.started <= own.started AND other.job_key <> own.job_key
               ORDER BY other.started DESC LIMIT 1000
           ) AS earlier) - 5000000000, 0)
       OR coalesce((SELECT min(later.started) FROM job_node AS later WHERE later.node = own.node AND later.started > own.started)
                   < coalesce(own.ended, 9223372036854775807) - 5000000000, 0) AS is_shared
FROM job_node AS own;
