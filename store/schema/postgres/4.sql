-- Version 4 for PostgreSQL and TimescaleDB: samples whose times cannot be, apart from others. Mirrors sqlite_4.sql.

-- Of nodes whose clocks are far off, where the collector's `[clock]` says so: it has neither partitions nor chunks, so that
-- no time in it makes a new one. `time` is what the node said, from 1970 to 2100, and `received` when it arrived.
CREATE TABLE samples_apart (
    time timestamptz NOT NULL,
    series_id int4 NOT NULL,
    value float8 NOT NULL,
    received timestamptz NOT NULL
);
CREATE INDEX samples_apart_by_series ON samples_apart (series_id, received);

ALTER TABLE ledger ADD COLUMN apart int8 NOT NULL DEFAULT 0;

-- due = missed + absent + dropped + skipped + rejected + apart + stored, up to the frame that brought the newest tally.
-- `apart` stands last, since a view that others may build on can only be added to.
CREATE OR REPLACE VIEW ledger_balance AS
SELECT session_id, job_key, source, due, taken, late, missed, absent, dropped, skipped, rejected,
       taken - dropped - skipped - rejected - apart AS stored, apart
FROM ledger;
