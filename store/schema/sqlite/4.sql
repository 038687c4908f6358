-- Version 4 for SQLite: samples whose times cannot be, apart from others. Mirrors postgres_4.sql.

-- Of nodes whose clocks are far off, where the collector's `[clock]` says so. `time` is what the node said, from 1970 to
-- 2100, and `received` when it arrived.
CREATE TABLE samples_apart (
    time INTEGER NOT NULL,
    series_id INTEGER NOT NULL,
    value REAL,
    received INTEGER NOT NULL
);
CREATE INDEX samples_apart_by_series ON samples_apart (series_id, received);

ALTER TABLE ledger ADD COLUMN apart INTEGER NOT NULL DEFAULT 0;

-- due = missed + absent + dropped + skipped + rejected + apart + stored, up to the frame that brought the newest tally.
DROP VIEW ledger_balance;
CREATE VIEW ledger_balance AS
SELECT session_id, job_key, source, due, taken, late, missed, absent, dropped, skipped, rejected,
       taken - dropped - skipped - rejected - apart AS stored, apart
FROM ledger;
