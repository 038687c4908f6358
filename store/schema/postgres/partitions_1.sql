-- Beside version 1 on plain PostgreSQL: one partition of samples per day.

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

-- The partitions that no longer grow and have no B-tree yet. The newest and the day before it are open.
CREATE VIEW polymeter_partition_to_close AS
SELECT part.relname::text AS partition
FROM pg_inherits
JOIN pg_class part ON part.oid = inhrelid
WHERE inhparent = 'samples'::regclass
    AND part.relname < 'samples_' || to_char((now() AT TIME ZONE 'UTC')::date - 1, 'YYYYMMDD')
    AND NOT EXISTS (
        SELECT FROM pg_index JOIN pg_class built ON built.oid = indexrelid
        WHERE indrelid = part.oid AND indisvalid AND built.relname = part.relname || '_by_series'
    );
