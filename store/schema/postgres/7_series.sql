-- Version 7 for PostgreSQL and TimescaleDB: one index of series instead of two. The series of a new job are next to each other
-- in it, instead of in a page for each node and metric.
DROP INDEX series_identity;
DROP INDEX series_by_job;
CREATE UNIQUE INDEX series_identity ON series (job_key, node, metric, md5(labels::text)) NULLS NOT DISTINCT;
