-- The samples of plain PostgreSQL: a partition for each day, in UTC.

-- Without a unique index, which costs the ingest: that each frame is stored once comes from
-- `session.last_sequence`.
--
-- A window is a row for the samples of a longer period: `value` is the last of them, `count` their number. Of a
-- gauge `min`, `max` and `sum` are those of the values; of a counter `min` and `max` are the smallest and the
-- largest rate between two samples, per second, and there is no `sum`. All four are null for a sample: they
-- take no space, since the head of a row has a bit for each.
CREATE TABLE samples (
    time timestamptz NOT NULL,
    series_id int8 NOT NULL,
    value float8 NOT NULL,
    count int8,
    min float8,
    max float8,
    sum float8
) PARTITION BY RANGE (time);

-- Creates the partition of one day, in UTC, unless it is there. The caller holds the schema's advisory lock.
CREATE FUNCTION polymeter_create_partition(day date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    name text := 'samples_' || to_char(day, 'YYYYMMDD');
BEGIN
    IF to_regclass(name) IS NOT NULL THEN
        RETURN;
    END IF;
    -- To attach a finished table locks less than to create it in its place.
    EXECUTE format('CREATE TABLE %I (LIKE samples)', name);
    EXECUTE format('CREATE INDEX %I ON %I USING brin (time)', name || '_brin', name);
    EXECUTE format('ALTER TABLE samples ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', name,
                   to_char(day, 'YYYY-MM-DD') || ' 00:00:00+00', to_char(day + 1, 'YYYY-MM-DD') || ' 00:00:00+00');
END
$$;

-- The partitions that no longer grow and have no B-tree yet: a partition is closed an hour after its day.
-- Samples that arrive later are added to its index.
CREATE VIEW polymeter_partition_to_close AS
SELECT part.relname::text AS partition
FROM pg_inherits
JOIN pg_class part ON part.oid = inhrelid
WHERE inhparent = 'samples'::regclass
    AND part.relname < 'samples_' || to_char((now() AT TIME ZONE 'UTC' - interval '1 h')::date, 'YYYYMMDD')
    AND NOT EXISTS (
        SELECT FROM pg_index JOIN pg_class built ON built.oid = indexrelid
        WHERE indrelid = part.oid AND indisvalid AND built.relname = part.relname || '_by_series'
    );
