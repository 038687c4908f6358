-- Retention: for how long rows are kept, and the jobs that are exempt.

-- Rows of a relation are removed after `keep_days`, or never. `dropped_before`: older rows were removed, or
-- are being removed, except for those of kept jobs. `complete_before`: none of them is left.
CREATE TABLE retention (
    relation text PRIMARY KEY,
    keep_days INTEGER,
    dropped_before INTEGER,
    complete_before INTEGER
);
INSERT INTO retention (relation) VALUES ('samples'), ('samples_10s'), ('samples_1min'), ('samples_1h');

-- The time by which rows become old. `accepted`: the latest time that maintenance found plausible. `refused`:
-- the time at which it refused to go on, since the clock had jumped ahead, until the clock is right again or
-- confirmed.
CREATE TABLE clock_check (accepted INTEGER NOT NULL, refused INTEGER);
INSERT INTO clock_check (accepted) VALUES (CAST(strftime('%s', 'now') AS INTEGER) * 1000000000);

-- The jobs whose rows are not removed, until a time or for ever. `is_complete`: none was removed before.
CREATE TABLE kept_job (
    job_key INTEGER PRIMARY KEY REFERENCES job,
    kept_at INTEGER NOT NULL,
    until INTEGER,
    is_complete INTEGER NOT NULL
);
