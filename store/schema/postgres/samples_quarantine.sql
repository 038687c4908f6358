-- Samples of nodes whose clocks are far off, where the collector's `[clock]` says so. The table has neither
-- partitions nor chunks, so that no time in it makes a new one. `time` is the node's, from 1970 to 2100, and
-- `received` the time of arrival.

CREATE TABLE samples_quarantine (
    time timestamptz NOT NULL,
    series_id int8 NOT NULL,
    value float8 NOT NULL,
    received timestamptz NOT NULL,
    count int8,
    min float8,
    max float8,
    sum float8
);
CREATE INDEX samples_quarantine_by_series ON samples_quarantine (series_id, received);
