-- Rollups: `samples_10s`, `samples_1min` and `samples_1h` have one row per series and bucket. `increase` is
-- for counters: the last value minus the first. A counter that fell to half or less has restarted;
-- it is counted from 0 then. Where it has since exceeded its earlier values, the part before the restart is
-- unknown and left out.
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
    PRIMARY KEY (series_id, time)
) WITHOUT ROWID;

CREATE TABLE rollup_1min (
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
    PRIMARY KEY (series_id, time)
) WITHOUT ROWID;

CREATE TABLE rollup_1h (
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
    PRIMARY KEY (series_id, time)
) WITHOUT ROWID;

CREATE VIEW samples_10s AS
WITH new AS (
    SELECT series_id, bucket AS time, count, min, max, sum, first_time, last_time,
           (SELECT value FROM samples WHERE samples.series_id = buckets.series_id AND samples.time = first_time AND samples.rowid > done
            ORDER BY samples.rowid LIMIT 1) AS first,
           (SELECT value FROM samples WHERE samples.series_id = buckets.series_id AND samples.time = last_time AND samples.rowid > done
            ORDER BY samples.rowid DESC LIMIT 1) AS last
    FROM (
        SELECT series_id, time - time % 10000000000 AS bucket, count(*) AS count, min(value) AS min, max(value) AS max, sum(value) AS sum,
               min(time) AS first_time, max(time) AS last_time, (SELECT samples_rowid FROM rollup WHERE relation = 'samples_10s') AS done
        FROM samples NOT INDEXED
        WHERE rowid > (SELECT samples_rowid FROM rollup WHERE relation = 'samples_10s') AND value IS NOT NULL
        GROUP BY series_id, bucket
    ) AS buckets
)
SELECT series_id, time, count, min, max, sum, first, last,
       CASE WHEN first = min AND last = max THEN last - first
            WHEN min > max / 2 THEN max - first
            WHEN last = max THEN last
            ELSE max - first + last END AS increase
FROM (
    SELECT old.series_id, old.time, old.count + coalesce(new.count, 0) AS count, min(old.min, coalesce(new.min, old.min)) AS min,
           max(old.max, coalesce(new.max, old.max)) AS max, old.sum + coalesce(new.sum, 0) AS sum,
           CASE WHEN new.first_time < old.first_time THEN new.first ELSE old.first END AS first,
           CASE WHEN new.last_time >= old.last_time THEN new.last ELSE old.last END AS last
    FROM rollup_10s AS old LEFT JOIN new ON new.series_id = old.series_id AND new.time = old.time
    UNION ALL
    SELECT series_id, time, count, min, max, sum, first, last FROM new
    WHERE NOT EXISTS (SELECT 1 FROM rollup_10s AS old WHERE old.series_id = new.series_id AND old.time = new.time)
);

CREATE VIEW samples_1min AS
WITH new AS (
    SELECT series_id, bucket AS time, count, min, max, sum, first_time, last_time,
           (SELECT value FROM samples WHERE samples.series_id = buckets.series_id AND samples.time = first_time AND samples.rowid > done
            ORDER BY samples.rowid LIMIT 1) AS first,
           (SELECT value FROM samples WHERE samples.series_id = buckets.series_id AND samples.time = last_time AND samples.rowid > done
            ORDER BY samples.rowid DESC LIMIT 1) AS last
    FROM (
        SELECT series_id, time - time % 60000000000 AS bucket, count(*) AS count, min(value) AS min, max(value) AS max, sum(value) AS sum,
               min(time) AS first_time, max(time) AS last_time, (SELECT samples_rowid FROM rollup WHERE relation = 'samples_1min') AS done
        FROM samples NOT INDEXED
        WHERE rowid > (SELECT samples_rowid FROM rollup WHERE relation = 'samples_1min') AND value IS NOT NULL
        GROUP BY series_id, bucket
    ) AS buckets
)
SELECT series_id, time, count, min, max, sum, first, last,
       CASE WHEN first = min AND last = max THEN last - first
            WHEN min > max / 2 THEN max - first
            WHEN last = max THEN last
            ELSE max - first + last END AS increase
FROM (
    SELECT old.series_id, old.time, old.count + coalesce(new.count, 0) AS count, min(old.min, coalesce(new.min, old.min)) AS min,
           max(old.max, coalesce(new.max, old.max)) AS max, old.sum + coalesce(new.sum, 0) AS sum,
           CASE WHEN new.first_time < old.first_time THEN new.first ELSE old.first END AS first,
           CASE WHEN new.last_time >= old.last_time THEN new.last ELSE old.last END AS last
    FROM rollup_1min AS old LEFT JOIN new ON new.series_id = old.series_id AND new.time = old.time
    UNION ALL
    SELECT series_id, time, count, min, max, sum, first, last FROM new
    WHERE NOT EXISTS (SELECT 1 FROM rollup_1min AS old WHERE old.series_id = new.series_id AND old.time = new.time)
);

CREATE VIEW samples_1h AS
WITH new AS (
    SELECT series_id, bucket AS time, count, min, max, sum, first_time, last_time,
           (SELECT value FROM samples WHERE samples.series_id = buckets.series_id AND samples.time = first_time AND samples.rowid > done
            ORDER BY samples.rowid LIMIT 1) AS first,
           (SELECT value FROM samples WHERE samples.series_id = buckets.series_id AND samples.time = last_time AND samples.rowid > done
            ORDER BY samples.rowid DESC LIMIT 1) AS last
    FROM (
        SELECT series_id, time - time % 3600000000000 AS bucket, count(*) AS count, min(value) AS min, max(value) AS max, sum(value) AS sum,
               min(time) AS first_time, max(time) AS last_time, (SELECT samples_rowid FROM rollup WHERE relation = 'samples_1h') AS done
        FROM samples NOT INDEXED
        WHERE rowid > (SELECT samples_rowid FROM rollup WHERE relation = 'samples_1h') AND value IS NOT NULL
        GROUP BY series_id, bucket
    ) AS buckets
)
SELECT series_id, time, count, min, max, sum, first, last,
       CASE WHEN first = min AND last = max THEN last - first
            WHEN min > max / 2 THEN max - first
            WHEN last = max THEN last
            ELSE max - first + last END AS increase
FROM (
    SELECT old.series_id, old.time, old.count + coalesce(new.count, 0) AS count, min(old.min, coalesce(new.min, old.min)) AS min,
           max(old.max, coalesce(new.max, old.max)) AS max, old.sum + coalesce(new.sum, 0) AS sum,
           CASE WHEN new.first_time < old.first_time THEN new.first ELSE old.first END AS first,
           CASE WHEN new.last_time >= old.last_time THEN new.last ELSE old.last END AS last
    FROM rollup_1h AS old LEFT JOIN new ON new.series_id = old.series_id AND new.time = old.time
    UNION ALL
    SELECT series_id, time, count, min, max, sum, first, last FROM new
    WHERE NOT EXISTS (SELECT 1 FROM rollup_1h AS old WHERE old.series_id = new.series_id AND old.time = new.time)
);
