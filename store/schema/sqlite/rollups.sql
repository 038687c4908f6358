-- Rollups: `samples_10s`, `samples_1min` and `samples_1h` have one row per series and bucket. `integral` is the
-- sum of the values, each multiplied by the seconds for which it holds, and `covered_s` the sum of these: the
-- mean over the time of buckets is the quotient of their sums. A sample holds until the next one, at most three
-- times the longer one of the times before it and behind the next one if there is one before, and at most five
-- minutes; without a next one as long as the one before. It counts in the bucket that it lies in. `increase` is for counters: the last
-- value minus the first. A counter that fell to half or less has restarted; it is counted from 0 then. Where it
-- has since exceeded its earlier values, the part before the restart is unknown and left out.
--
-- The collector computes the buckets that new rows of `samples` change, in the order in which these were
-- inserted. The views compute those of the rows behind them.

-- Buckets that begin before `final_before` are not computed again: retention removed their samples. The tables
-- have the rows of `samples` up to `samples_rowid`. `step_rowid` is the last row that the collector adds in a
-- step, null outside of its transaction.
CREATE TABLE rollup (
    relation text PRIMARY KEY,
    final_before INTEGER,
    samples_rowid INTEGER NOT NULL DEFAULT 0,
    step_rowid INTEGER
);
INSERT INTO rollup (relation) VALUES ('samples_10s'), ('samples_1min'), ('samples_1h');

CREATE TABLE rollup_10s (
    series_id INTEGER NOT NULL,
    time INTEGER NOT NULL,
    count INTEGER NOT NULL,
    min REAL NOT NULL,
    max REAL NOT NULL,
    integral REAL NOT NULL,
    covered_s REAL NOT NULL,
    first REAL NOT NULL,
    last REAL NOT NULL,
    PRIMARY KEY (series_id, time)
) WITHOUT ROWID;

CREATE TABLE rollup_1min (
    series_id INTEGER NOT NULL,
    time INTEGER NOT NULL,
    count INTEGER NOT NULL,
    min REAL NOT NULL,
    max REAL NOT NULL,
    integral REAL NOT NULL,
    covered_s REAL NOT NULL,
    first REAL NOT NULL,
    last REAL NOT NULL,
    PRIMARY KEY (series_id, time)
) WITHOUT ROWID;

CREATE TABLE rollup_1h (
    series_id INTEGER NOT NULL,
    time INTEGER NOT NULL,
    count INTEGER NOT NULL,
    min REAL NOT NULL,
    max REAL NOT NULL,
    integral REAL NOT NULL,
    covered_s REAL NOT NULL,
    first REAL NOT NULL,
    last REAL NOT NULL,
    PRIMARY KEY (series_id, time)
) WITHOUT ROWID;

-- The buckets of 10 s that the rows behind the tables change: their own, and those of the two samples before and
-- of the next one, whose times depend on them.
CREATE VIEW polymeter_changed_bucket AS
WITH new AS (
    SELECT series_id, time - time % 10000000000 AS bucket, min(time) AS begin, max(time) AS end
    FROM samples NOT INDEXED
    WHERE rowid > (SELECT samples_rowid FROM rollup WHERE relation = 'samples_10s')
        AND rowid <= coalesce((SELECT step_rowid FROM rollup WHERE relation = 'samples_10s'), 9223372036854775807) AND value IS NOT NULL
    GROUP BY series_id, bucket
)
SELECT series_id, time FROM (
    SELECT series_id, bucket AS time FROM new
    UNION
    SELECT series_id, (
        SELECT time - time % 10000000000 FROM samples
        WHERE samples.series_id = new.series_id AND time < begin AND time >= begin - 300000000000 AND value IS NOT NULL
        ORDER BY time DESC LIMIT 1) FROM new
    UNION
    SELECT series_id, (
        SELECT time - time % 10000000000 FROM samples
        WHERE samples.series_id = new.series_id AND time < begin AND time >= begin - 300000000000 AND value IS NOT NULL
        ORDER BY time DESC LIMIT 1 OFFSET 1) FROM new
    UNION
    SELECT series_id, (
        SELECT time - time % 10000000000 FROM samples
        WHERE samples.series_id = new.series_id AND time > end AND time <= end + 300000000000 AND value IS NOT NULL
        ORDER BY time LIMIT 1) FROM new
) WHERE time >= coalesce((SELECT final_before FROM rollup WHERE relation = 'samples_10s'), 0);

-- These buckets, from their samples, and from one sample before and two behind them.
CREATE VIEW polymeter_changed_10s AS
SELECT series_id, bucket AS time, count(*) AS count, min(value) AS min, max(value) AS max, sum(value * held_s) AS integral,
       sum(held_s) AS covered_s, min(first) AS first, min(last) AS last
FROM (
    SELECT series_id, bucket, value,
           max(1e3, CASE WHEN next_ns <= 300000000000
               THEN coalesce(min(next_ns, 3 * max(before_ns, coalesce(after_ns, 0))), next_ns)
               ELSE coalesce(before_ns, 300000000000) END) / 1e9 AS held_s,
           first_value(value) OVER line AS first, last_value(value) OVER line AS last
    FROM (
        SELECT series_id, bucket, time, value, row, next_ns,
               CASE WHEN before_ns <= 300000000000 THEN before_ns END AS before_ns,
               CASE WHEN next_ns + after_ns <= 300000000000 THEN after_ns END AS after_ns
        FROM (
            SELECT sample.series_id, part.time AS bucket, sample.time, value, sample.rowid AS row, sample.time - lag(sample.time) OVER line AS before_ns,
                   lead(sample.time) OVER line - sample.time AS next_ns,
                   lead(sample.time, 2) OVER line - lead(sample.time) OVER line AS after_ns
            FROM polymeter_changed_bucket AS part CROSS JOIN samples AS sample ON sample.series_id = part.series_id
                AND sample.time >= coalesce((
                    SELECT max(time) FROM samples
                    WHERE samples.series_id = part.series_id AND time < part.time AND time >= part.time - 300000000000 AND value IS NOT NULL), part.time)
                AND sample.time <= coalesce((
                    SELECT max(time) FROM (
                        SELECT time FROM samples
                        WHERE samples.series_id = part.series_id AND time >= part.time + 10000000000 AND time < part.time + 310000000000
                            AND value IS NOT NULL
                        ORDER BY time LIMIT 2)), part.time + 9999999999)
            WHERE value IS NOT NULL
            WINDOW line AS (PARTITION BY part.series_id, part.time ORDER BY sample.time, sample.rowid)
        )
    ) WHERE time >= bucket AND time < bucket + 10000000000
    WINDOW line AS (PARTITION BY series_id, bucket ORDER BY time, row ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
) GROUP BY series_id, bucket;

-- The same of a minute and of an hour, from their buckets of 10 s.
CREATE VIEW polymeter_changed_minute AS
SELECT DISTINCT series_id, time - time % 60000000000 AS time FROM polymeter_changed_bucket
WHERE time - time % 60000000000 >= coalesce((SELECT final_before FROM rollup WHERE relation = 'samples_1min'), 0);

CREATE VIEW polymeter_changed_1min AS
SELECT series_id, wide AS time, sum(count) AS count, min(min) AS min, max(max) AS max, sum(integral) AS integral,
       sum(covered_s) AS covered_s, min(first) AS first, min(last) AS last
FROM (
    SELECT series_id, time - time % 60000000000 AS wide, count, min, max, integral, covered_s,
           first_value(first) OVER line AS first, last_value(last) OVER line AS last
    FROM (
        SELECT old.series_id, old.time, count, min, max, integral, covered_s, first, last
        FROM polymeter_changed_minute AS part
        CROSS JOIN rollup_10s AS old ON old.series_id = part.series_id AND old.time >= part.time AND old.time < part.time + 60000000000
        WHERE (old.series_id, old.time) NOT IN (SELECT series_id, time FROM polymeter_changed_bucket)
        UNION ALL
        SELECT series_id, time, count, min, max, integral, covered_s, first, last FROM polymeter_changed_10s
    ) WHERE time - time % 60000000000 >= coalesce((SELECT final_before FROM rollup WHERE relation = 'samples_1min'), 0)
    WINDOW line AS (PARTITION BY series_id, time - time % 60000000000 ORDER BY time ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
) GROUP BY series_id, wide;

CREATE VIEW polymeter_changed_hour AS
SELECT DISTINCT series_id, time - time % 3600000000000 AS time FROM polymeter_changed_bucket
WHERE time - time % 3600000000000 >= coalesce((SELECT final_before FROM rollup WHERE relation = 'samples_1min'), 0);

CREATE VIEW polymeter_changed_1h AS
SELECT series_id, wide AS time, sum(count) AS count, min(min) AS min, max(max) AS max, sum(integral) AS integral,
       sum(covered_s) AS covered_s, min(first) AS first, min(last) AS last
FROM (
    SELECT series_id, time - time % 3600000000000 AS wide, count, min, max, integral, covered_s,
           first_value(first) OVER line AS first, last_value(last) OVER line AS last
    FROM (
        SELECT old.series_id, old.time, count, min, max, integral, covered_s, first, last
        FROM polymeter_changed_hour AS part
        CROSS JOIN rollup_10s AS old ON old.series_id = part.series_id AND old.time >= part.time AND old.time < part.time + 3600000000000
        WHERE (old.series_id, old.time) NOT IN (SELECT series_id, time FROM polymeter_changed_bucket)
        UNION ALL
        SELECT series_id, time, count, min, max, integral, covered_s, first, last FROM polymeter_changed_10s
    ) WHERE time - time % 3600000000000 >= coalesce((SELECT final_before FROM rollup WHERE relation = 'samples_1min'), 0)
    WINDOW line AS (PARTITION BY series_id, time - time % 3600000000000 ORDER BY time ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
) GROUP BY series_id, wide;

CREATE VIEW samples_10s AS
SELECT series_id, time, count, min, max, integral, covered_s, first, last,
       CASE WHEN first = min AND last = max THEN last - first
            WHEN min > max / 2 THEN max - first
            WHEN last = max THEN last
            ELSE max - first + last END AS increase
FROM (
    SELECT series_id, time, count, min, max, integral, covered_s, first, last FROM rollup_10s
    WHERE (series_id, time) NOT IN (SELECT series_id, time FROM polymeter_changed_bucket)
    UNION ALL
    SELECT series_id, time, count, min, max, integral, covered_s, first, last FROM polymeter_changed_10s
);

CREATE VIEW samples_1min AS
SELECT series_id, time, count, min, max, integral, covered_s, first, last,
       CASE WHEN first = min AND last = max THEN last - first
            WHEN min > max / 2 THEN max - first
            WHEN last = max THEN last
            ELSE max - first + last END AS increase
FROM (
    SELECT series_id, time, count, min, max, integral, covered_s, first, last FROM rollup_1min
    WHERE (series_id, time) NOT IN (SELECT series_id, time FROM polymeter_changed_minute)
    UNION ALL
    SELECT series_id, time, count, min, max, integral, covered_s, first, last FROM polymeter_changed_1min
);

CREATE VIEW samples_1h AS
SELECT series_id, time, count, min, max, integral, covered_s, first, last,
       CASE WHEN first = min AND last = max THEN last - first
            WHEN min > max / 2 THEN max - first
            WHEN last = max THEN last
            ELSE max - first + last END AS increase
FROM (
    SELECT series_id, time, count, min, max, integral, covered_s, first, last FROM rollup_1h
    WHERE (series_id, time) NOT IN (SELECT series_id, time FROM polymeter_changed_hour)
    UNION ALL
    SELECT series_id, time, count, min, max, integral, covered_s, first, last FROM polymeter_changed_1h
);
