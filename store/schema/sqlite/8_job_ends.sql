-- Version 8 for SQLite: the ends of jobs for which a collector has to run a command.

-- As in PostgreSQL.
CREATE TABLE job_end (
    job_key INTEGER PRIMARY KEY REFERENCES job,
    noticed INTEGER NOT NULL,
    claimed_until INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0
);
