-- Histograms of windows, of the metrics that the agent's key `histograms` or a period with `/histogram` selects: a
-- row for each bucket with samples. `job_key` is null for a node's own series. `time` is that of the window's row in `samples`. `count` samples were at least `least`, and less
-- than that of the next bucket: of a gauge the values, of a counter the rates between two samples per second,
-- rounded to whole numbers. Below 32 each number has a bucket; above, each power of two has 16 of the same
-- width. So sums of counts over windows and nodes are histograms, too.
CREATE TABLE window_histogram (
    job_key int8,
    time timestamptz NOT NULL,
    series_id int8 NOT NULL,
    least float8 NOT NULL,
    count int8 NOT NULL
);
CREATE INDEX window_histogram_by_job ON window_histogram (job_key, series_id);
CREATE INDEX window_histogram_of_nodes ON window_histogram (series_id, time) WHERE job_key IS NULL;
CREATE INDEX window_histogram_by_time ON window_histogram (time);
