-- Beside version 7 on plain PostgreSQL: a partition is closed an hour after its day, instead of a day. Samples that arrive later are
-- added to its index.

CREATE OR REPLACE VIEW polymeter_partition_to_close AS
SELECT part.relname::text AS partition
FROM pg_inherits
JOIN pg_class part ON part.oid = inhrelid
WHERE inhparent = 'samples'::regclass
    AND part.relname < 'samples_' || to_char((now() AT TIME ZONE 'UTC' - interval '1 h')::date, 'YYYYMMDD')
    AND NOT EXISTS (
        SELECT FROM pg_index JOIN pg_class built ON built.oid = indexrelid
        WHERE indrelid = part.oid AND indisvalid AND built.relname = part.relname || '_by_series'
    );
