-- Beside samples_hypertable.sql, where the licence of TimescaleDB includes compression. Segments by series
-- would contain a row or two each at typical rates: 91 bytes per row were measured, compared with 7 to 10.

ALTER TABLE samples SET (timescaledb.compress, timescaledb.compress_segmentby = '',
                         timescaledb.compress_orderby = 'series_id,time');
SELECT add_compression_policy('samples', compress_after => interval '2 days', if_not_exists => true);
