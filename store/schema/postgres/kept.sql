-- Samples that rings of agents held in memory, and sent because a trigger or a user wanted them. They stand
-- beside `samples`, which has the same series at their usual periods: rollups and figures of jobs are without
-- them.

-- `started` and `ended` bound the interval, by the clock of the node. `trigger_id` is the same on all nodes
-- that kept it. `reason` says to people why it was kept. `samples`: those that the node sent of it.
CREATE TABLE kept_interval (
    job_key int8 NOT NULL,
    node text NOT NULL,
    started timestamptz NOT NULL,
    ended timestamptz NOT NULL,
    trigger_id int8 NOT NULL,
    reason text NOT NULL,
    samples int8 NOT NULL
);
CREATE INDEX kept_interval_by_job ON kept_interval (job_key);
CREATE INDEX kept_interval_by_time ON kept_interval (ended);

-- Without a unique index, as `samples`. Two intervals may overlap, and have a sample twice.
CREATE TABLE kept_sample (
    time timestamptz NOT NULL,
    series_id int8 NOT NULL,
    value float8 NOT NULL
);
CREATE INDEX kept_sample_by_series ON kept_sample (series_id, time);
CREATE INDEX kept_sample_by_time ON kept_sample (time);
