-- Rollups: `samples_10s`, `samples_1min` and `samples_1h` have one row per series and bucket. `increase` is
-- for counters: the last value minus the first. A counter that fell to half or less has restarted;
-- it is counted from 0 then. Where it has since exceeded its earlier values, the part before the restart is
-- unknown and left out.
--
-- The mean of a bucket is `sum / parts`: of 10 s over its samples, of longer ones over the means of their
-- buckets of 10 s, so that a time with a shorter period weighs no more than another.
--
-- `rate_min` and `rate_max` are the extremes of the rates that windows of a counter had, per second; null without
-- windows. A window counts as the samples that it had.
--
-- The collector adds new rows of `samples` to the tables in the order in which they were inserted. The views
-- add the rows behind them.

-- Buckets that begin before `final_before` are not computed again: retention removed their samples. Rows of
-- `samples` up to `samples_rowid` are in the tables.
CREATE TABLE rollup (
    relation text PRIMARY KEY,
    final_before INTEGER,
    samples_rowid INTEGER NOT NULL DEFAULT 0
);
INSERT INTO rollup (relation) VALUES ('samples_10s'), ('samples_1min'), ('samples_1h');

CREATE TABLE rollup_10s (
    series_id INTEGER NOT NULL,
    time INTEGER NOT NULL,
    count INTEGER NOT NULL,
    min REAL NOT NULL,
    max REAL NOT NULL,
    sum REAL NOT NULL,
    first_time INTEGER NOT NULL,
    first REAL NOT NULL,
    last_time INTEGER NOT NULL,
    last REAL NOT NULL,
    rate_min REAL,
    rate_max REAL,
    PRIMARY KEY (series_id, time)
) WITHOUT ROWID;

CREATE TABLE rollup_1min (
    series_id INTEGER NOT NULL,
    time INTEGER NOT NULL,
    count INTEGER NOT NULL,
    min REAL NOT NULL,
    max REAL NOT NULL,
    sum REAL NOT NULL,
    parts INTEGER NOT NULL,
    first_time INTEGER NOT NULL,
    first REAL NOT NULL,
    last_time INTEGER NOT NULL,
    last REAL NOT NULL,
    rate_min REAL,
    rate_max REAL,
    PRIMARY KEY (series_id, time)
) WITHOUT ROWID;

CREATE TABLE rollup_1h (
    series_id INTEGER NOT NULL,
    time INTEGER NOT NULL,
    count INTEGER NOT NULL,
    min REAL NOT NULL,
    max REAL NOT NULL,
    sum REAL NOT NULL,
    parts INTEGER NOT NULL,
    first_time INTEGER NOT NULL,
    first REAL NOT NULL,
    last_time INTEGER NOT NULL,
    last REAL NOT NULL,
    rate_min REAL,
    rate_max REAL,
    PRIMARY KEY (series_id, time)
) WITHOUT ROWID;

-- The buckets of 10 s of the samples behind, and how they change a sum of means: by the change of the mean of
-- a bucket that is in the table, or by a part more.
CREATE VIEW polymeter_recent_bucket AS
SELECT recent.series_id, recent.time, recent.count, recent.min, recent.max, recent.sum, recent.first_time, recent.last_time,
       recent.rate_min, recent.rate_max,
       coalesce((old.sum + recent.sum) / (old.count + recent.count) - old.sum / old.count, recent.sum / recent.count) AS mean_change,
       old.series_id IS NULL AS parts_change
FROM (
    SELECT series_id, time - time % 10000000000 AS time, sum(coalesce(count, 1)) AS count,
           min(CASE WHEN sum IS NULL THEN value ELSE min END) AS min, max(CASE WHEN sum IS NULL THEN value ELSE max END) AS max,
           sum(coalesce(sum, value * coalesce(count, 1))) AS sum, min(time) AS first_time, max(time) AS last_time,
           min(CASE WHEN sum IS NULL THEN min END) AS rate_min, max(CASE WHEN sum IS NULL THEN max END) AS rate_max
    FROM samples NOT INDEXED
    WHERE rowid > (SELECT samples_rowid FROM rollup WHERE relation = 'samples_10s') AND value IS NOT NULL
    GROUP BY series_id, time - time % 10000000000
) AS recent
LEFT JOIN rollup_10s AS old ON old.series_id = recent.series_id AND old.time = recent.time;

CREATE VIEW samples_10s AS
WITH new AS (
    SELECT series_id, time, count, min, max, sum, first_time, last_time, rate_min, rate_max,
           (SELECT value FROM samples WHERE samples.series_id = buckets.series_id AND samples.time = first_time AND samples.rowid > done
            ORDER BY samples.rowid LIMIT 1) AS first,
           (SELECT value FROM samples WHERE samples.series_id = buckets.series_id AND samples.time = last_time AND samples.rowid > done
            ORDER BY samples.rowid DESC LIMIT 1) AS last
    FROM (
        SELECT series_id, time, count, min, max, sum, first_time, last_time, rate_min, rate_max,
               (SELECT samples_rowid FROM rollup WHERE relation = 'samples_10s') AS done
        FROM polymeter_recent_bucket
    ) AS buckets
)
SELECT series_id, time, count, min, max, sum, count AS parts, first, last,
       CASE WHEN first = min AND last = max THEN last - first
            WHEN min > max / 2 THEN max - first
            WHEN last = max THEN last
            ELSE max - first + last END AS increase, rate_min, rate_max
FROM (
    SELECT old.series_id, old.time, old.count + coalesce(new.count, 0) AS count, min(old.min, coalesce(new.min, old.min)) AS min,
           max(old.max, coalesce(new.max, old.max)) AS max, old.sum + coalesce(new.sum, 0) AS sum,
           CASE WHEN new.first_time < old.first_time THEN new.first ELSE old.first END AS first,
           CASE WHEN new.last_time >= old.last_time THEN new.last ELSE old.last END AS last,
           min(coalesce(old.rate_min, new.rate_min), coalesce(new.rate_min, old.rate_min)) AS rate_min,
           max(coalesce(old.rate_max, new.rate_max), coalesce(new.rate_max, old.rate_max)) AS rate_max
    FROM rollup_10s AS old LEFT JOIN new ON new.series_id = old.series_id AND new.time = old.time
    UNION ALL
    SELECT series_id, time, count, min, max, sum, first, last, rate_min, rate_max FROM new
    WHERE NOT EXISTS (SELECT 1 FROM rollup_10s AS old WHERE old.series_id = new.series_id AND old.time = new.time)
);

CREATE VIEW samples_1min AS
WITH new AS (
    SELECT series_id, time, count, min, max, sum, parts, first_time, last_time, rate_min, rate_max,
           (SELECT value FROM samples WHERE samples.series_id = buckets.series_id AND samples.time = first_time AND samples.rowid > done
            ORDER BY samples.rowid LIMIT 1) AS first,
           (SELECT value FROM samples WHERE samples.series_id = buckets.series_id AND samples.time = last_time AND samples.rowid > done
            ORDER BY samples.rowid DESC LIMIT 1) AS last
    FROM (
        SELECT series_id, time - time % 60000000000 AS time, sum(count) AS count, min(min) AS min, max(max) AS max,
               sum(mean_change) AS sum, sum(parts_change) AS parts, min(first_time) AS first_time, max(last_time) AS last_time,
               min(rate_min) AS rate_min, max(rate_max) AS rate_max,
               (SELECT samples_rowid FROM rollup WHERE relation = 'samples_1min') AS done
        FROM polymeter_recent_bucket GROUP BY series_id, time - time % 60000000000
    ) AS buckets
)
SELECT series_id, time, count, min, max, sum, parts, first, last,
       CASE WHEN first = min AND last = max THEN last - first
            WHEN min > max / 2 THEN max - first
            WHEN last = max THEN last
            ELSE max - first + last END AS increase, rate_min, rate_max
FROM (
    SELECT old.series_id, old.time, old.count + coalesce(new.count, 0) AS count, min(old.min, coalesce(new.min, old.min)) AS min,
           max(old.max, coalesce(new.max, old.max)) AS max, old.sum + coalesce(new.sum, 0) AS sum,
           old.parts + coalesce(new.parts, 0) AS parts,
           CASE WHEN new.first_time < old.first_time THEN new.first ELSE old.first END AS first,
           CASE WHEN new.last_time >= old.last_time THEN new.last ELSE old.last END AS last,
           min(coalesce(old.rate_min, new.rate_min), coalesce(new.rate_min, old.rate_min)) AS rate_min,
           max(coalesce(old.rate_max, new.rate_max), coalesce(new.rate_max, old.rate_max)) AS rate_max
    FROM rollup_1min AS old LEFT JOIN new ON new.series_id = old.series_id AND new.time = old.time
    UNION ALL
    SELECT series_id, time, count, min, max, sum, parts, first, last, rate_min, rate_max FROM new
    WHERE NOT EXISTS (SELECT 1 FROM rollup_1min AS old WHERE old.series_id = new.series_id AND old.time = new.time)
);

CREATE VIEW samples_1h AS
WITH new AS (
    SELECT series_id, time, count, min, max, sum, parts, first_time, last_time, rate_min, rate_max,
           (SELECT value FROM samples WHERE samples.series_id = buckets.series_id AND samples.time = first_time AND samples.rowid > done
            ORDER BY samples.rowid LIMIT 1) AS first,
           (SELECT value FROM samples WHERE samples.series_id = buckets.series_id AND samples.time = last_time AND samples.rowid > done
            ORDER BY samples.rowid DESC LIMIT 1) AS last
    FROM (
        SELECT series_id, time - time % 3600000000000 AS time, sum(count) AS count, min(min) AS min, max(max) AS max,
               sum(mean_change) AS sum, sum(parts_change) AS parts, min(first_time) AS first_time, max(last_time) AS last_time,
               min(rate_min) AS rate_min, max(rate_max) AS rate_max,
               (SELECT samples_rowid FROM rollup WHERE relation = 'samples_1h') AS done
        FROM polymeter_recent_bucket GROUP BY series_id, time - time % 3600000000000
    ) AS buckets
)
SELECT series_id, time, count, min, max, sum, parts, first, last,
       CASE WHEN first = min AND last = max THEN last - first
            WHEN min > max / 2 THEN max - first
            WHEN last = max THEN last
            ELSE max - first + last END AS increase, rate_min, rate_max
FROM (
    SELECT old.series_id, old.time, old.count + coalesce(new.count, 0) AS count, min(old.min, coalesce(new.min, old.min)) AS min,
           max(old.max, coalesce(new.max, old.max)) AS max, old.sum + coalesce(new.sum, 0) AS sum,
           old.parts + coalesce(new.parts, 0) AS parts,
           CASE WHEN new.first_time < old.first_time THEN new.first ELSE old.first END AS first,
           CASE WHEN new.last_time >= old.last_time THEN new.last ELSE old.last END AS last,
           min(coalesce(old.rate_min, new.rate_min), coalesce(new.rate_min, old.rate_min)) AS rate_min,
           max(coalesce(old.rate_max, new.rate_max), coalesce(new.rate_max, old.rate_max)) AS rate_max
    FROM rollup_1h AS old LEFT JOIN new ON new.series_id = old.series_id AND new.time = old.time
    UNION ALL
    SELECT series_id, time, count, min, max, sum, parts, first, last, rate_min, rate_max FROM new
    WHERE NOT EXISTS (SELECT 1 FROM rollup_1h AS old WHERE old.series_id = new.series_id AND old.time = new.time)
);
