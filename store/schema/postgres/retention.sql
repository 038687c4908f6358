-- Retention: for how long rows are kept, and the jobs that are exempt.

-- Rows of a relation are removed after `keep_days`, or never. `dropped_before`: older rows were removed, or
-- are being removed, except for those of kept jobs. `complete_before`: none of them is left.
CREATE TABLE retention (
    relation text PRIMARY KEY,
    keep_days int8,
    dropped_before timestamptz,
    complete_before timestamptz
);
INSERT INTO retention (relation) VALUES ('samples'), ('samples_10s'), ('samples_1min'), ('samples_1h');

-- The time by which rows become old. `accepted`: the latest time that maintenance found plausible. `refused`:
-- the time at which it refused to go on, since the clock had jumped ahead, until the clock is right again or
-- confirmed.
CREATE TABLE clock_check (accepted timestamptz NOT NULL, refused timestamptz);
INSERT INTO clock_check (accepted) VALUES (now());

-- The jobs whose rows are not removed, until a time or for ever. `is_complete`: none was removed before.
CREATE TABLE kept_job (
    job_key int8 PRIMARY KEY REFERENCES job,
    kept_at timestamptz NOT NULL,
    until timestamptz,
    is_complete boolean NOT NULL
);

-- The chunks and partitions that contain no more than the rows of `job_keys`.
CREATE TABLE kept_part (
    relation text NOT NULL,
    begin_at timestamptz NOT NULL,
    job_keys text NOT NULL,
    PRIMARY KEY (relation, begin_at)
);
