-- Version 8 for PostgreSQL and TimescaleDB: the ends of jobs for which a collector has to run a command. Mirrors sqlite/8_job_ends.sql.

-- A row is inserted together with the end, and deleted after the command. `noticed`: the time at which the end was stored.
-- `claimed_until`: until then a collector runs the command. `attempts`: the number of claims.
CREATE TABLE job_end (
    job_key int8 PRIMARY KEY REFERENCES job,
    noticed timestamptz NOT NULL,
    claimed_until timestamptz,
    attempts int8 NOT NULL DEFAULT 0
);
