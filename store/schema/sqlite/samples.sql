-- Series, and their samples. Jobs have the same list of series: such a list, a shape, is stored once, and
-- found by a digest of its members.

CREATE TABLE series_shape (
    shape_id INTEGER PRIMARY KEY,
    digest text NOT NULL UNIQUE
);
CREATE TABLE series_shape_member (
    shape_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    metric text NOT NULL,
    labels text NOT NULL,
    -- The role of the device that the labels name: `physical`, `part`, `stacked` or `local`, then the devices
    -- below it.
    role text,
    PRIMARY KEY (shape_id, position)
) WITHOUT ROWID;
CREATE UNIQUE INDEX series_shape_identity ON series_shape_member (shape_id, metric, labels);

-- A block is the series of a job on a node, or of a node, that were registered together. Their ids follow
-- each other from `first_id`. Blocks do not overlap: the block of an id is the one with the greatest
-- `first_id` that is not above it. `served_node`: of series of a device outside the nodes, the node that the
-- device, its outlet or its port serves; `/` and `node`, which is no node, if they name a job that they do
-- not belong to.
CREATE TABLE series_block (
    first_id INTEGER PRIMARY KEY,
    shape_id INTEGER NOT NULL,
    job_key INTEGER,
    node text NOT NULL,
    job_id text,
    served_node text
);
CREATE INDEX series_block_by_job ON series_block (job_key, node);
CREATE INDEX series_block_by_shape ON series_block (shape_id);
-- The series of nodes, which are few beside those of jobs.
CREATE INDEX series_block_by_measured_node ON series_block (coalesce(served_node, node)) WHERE job_key IS NULL;

-- The id of the next series. An id is never used again, also when its series was deleted.
CREATE TABLE series_counter (
    next_id INTEGER NOT NULL
);
INSERT INTO series_counter VALUES (1);

-- `measured_node`: the node that the values are about. It is not `node`, which took the samples, for a device
-- that serves another node.
CREATE VIEW series AS
SELECT first_id + position AS series_id, node, metric, job_key, job_id, labels, role, coalesce(served_node, node) AS measured_node
FROM series_block JOIN series_shape_member ON series_shape_member.shape_id = series_block.shape_id;

-- Without a unique index: that each frame is stored once comes from `session.last_sequence`.
--
-- A window is a row for the samples of a longer period: `value` is the last of them, `count` their number. Of a
-- gauge `min`, `max` and `sum` are those of the values; of a counter `min` and `max` are the smallest and the
-- largest rate between two samples, per second, and there is no `sum`. All four are null for a sample.
--
-- The columns of windows stand last: SQLite is compiled to leave nulls at the end of a row out.
CREATE TABLE samples (
    time INTEGER NOT NULL,
    series_id INTEGER NOT NULL,
    value REAL,
    count INTEGER,
    min REAL,
    max REAL,
    sum REAL
);
CREATE INDEX samples_by_series ON samples (series_id, time);

-- Samples of nodes whose clocks are far off, where the collector's `[clock]` says so. `time` is the node's,
-- from 1970 to 2100, and `received` the time of arrival.
CREATE TABLE samples_quarantine (
    time INTEGER NOT NULL,
    series_id INTEGER NOT NULL,
    value REAL,
    received INTEGER NOT NULL,
    count INTEGER,
    min REAL,
    max REAL,
    sum REAL
);
CREATE INDEX samples_quarantine_by_series ON samples_quarantine (series_id, received);
