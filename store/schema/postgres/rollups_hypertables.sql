-- The tables of rollups as hypertables, whose chunks the collector compresses when they no longer grow.

CREATE TABLE rollup_10s (
    series_id int8 NOT NULL,
    time timestamptz NOT NULL,
    count int8 NOT NULL,
    min float8 NOT NULL,
    max float8 NOT NULL,
    integral float8 NOT NULL,
    covered_s float8 NOT NULL,
    first float8 NOT NULL,
    last float8 NOT NULL
);
SELECT create_hypertable('rollup_10s', by_range('time', interval '6 hours'), create_default_indexes => false);
CREATE INDEX rollup_10s_by_series ON rollup_10s (series_id, time);
ALTER TABLE rollup_10s SET (timescaledb.compress, timescaledb.compress_segmentby = '', timescaledb.compress_orderby = 'series_id,time');

CREATE TABLE rollup_1min (
    series_id int8 NOT NULL,
    time timestamptz NOT NULL,
    count int8 NOT NULL,
    min float8 NOT NULL,
    max float8 NOT NULL,
    integral float8 NOT NULL,
    covered_s float8 NOT NULL,
    first float8 NOT NULL,
    last float8 NOT NULL
);
SELECT create_hypertable('rollup_1min', by_range('time', interval '1 day'), create_default_indexes => false);
CREATE INDEX rollup_1min_by_series ON rollup_1min (series_id, time);
ALTER TABLE rollup_1min SET (timescaledb.compress, timescaledb.compress_segmentby = '', timescaledb.compress_orderby = 'series_id,time');

CREATE TABLE rollup_1h (
    series_id int8 NOT NULL,
    time timestamptz NOT NULL,
    count int8 NOT NULL,
    min float8 NOT NULL,
    max float8 NOT NULL,
    integral float8 NOT NULL,
    covered_s float8 NOT NULL,
    first float8 NOT NULL,
    last float8 NOT NULL
);
SELECT create_hypertable('rollup_1h', by_range('time', interval '28 days'), create_default_indexes => false);
CREATE INDEX rollup_1h_by_series ON rollup_1h (series_id, time);
ALTER TABLE rollup_1h SET (timescaledb.compress, timescaledb.compress_segmentby = '', timescaledb.compress_orderby = 'series_id,time');

-- A hypertable makes its chunks itself.
CREATE FUNCTION polymeter_create_rollup_partitions(instant timestamptz) RETURNS void LANGUAGE sql AS 'SELECT';

-- Samples before `ordered_before` are in the order of their series, in batches of at most an hour. The
-- collector orders those of the last two days; the compression policy orders older chunks.
CREATE TABLE samples_order (
    ordered_before timestamptz NOT NULL
);
INSERT INTO samples_order VALUES (date_trunc('hour', now()) - interval '2 days');
