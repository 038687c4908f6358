-- Version 7 for SQLite: what retention needs to know.

-- As in PostgreSQL.
CREATE TABLE retention (
    relation text PRIMARY KEY,
    keep_days INTEGER,
    dropped_before INTEGER,
    complete_before INTEGER
);
INSERT INTO retention (relation) VALUES ('samples'), ('samples_10s'), ('samples_1min'), ('samples_1h');

CREATE TABLE kept_job (
    job_key INTEGER PRIMARY KEY REFERENCES job,
    kept_at INTEGER NOT NULL,
    until INTEGER,
    is_complete INTEGER NOT NULL
);
