-- The samples of TimescaleDB: a hypertable with a chunk for each day.

-- As in samples_partitions.sql. The default index on time would slow down the ingest, and would disable
-- direct compression if it were unique.
CREATE TABLE samples (
    time timestamptz NOT NULL,
    series_id int8 NOT NULL,
    value float8 NOT NULL,
    count int8,
    min float8,
    max float8,
    sum float8
);
SELECT create_hypertable('samples', by_range('time', interval '1 day'), create_default_indexes => false);
