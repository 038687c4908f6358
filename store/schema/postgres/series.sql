-- Series. Jobs have the same list of series: such a list, a shape, is stored once, and found by a
-- digest of its members.

CREATE TABLE series_shape (
    shape_id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest text NOT NULL UNIQUE
);
CREATE TABLE series_shape_member (
    shape_id int8 NOT NULL,
    position int4 NOT NULL,
    metric text NOT NULL,
    labels jsonb NOT NULL,
    -- The role of the device that the labels name: `physical`, `part`, `stacked` or `local`, then the devices
    -- below it.
    role text,
    PRIMARY KEY (shape_id, position),
    FOREIGN KEY (shape_id) REFERENCES series_shape ON DELETE CASCADE
);
-- The labels of one series may be longer than an index entry, their digest is not.
CREATE UNIQUE INDEX series_shape_identity ON series_shape_member (shape_id, metric, md5(labels::text));

-- A block is the series of a job on a node, or of a node, that were registered together. Their ids follow
-- each other from `first_id`. Blocks do not overlap: the block of an id is the one with the greatest
-- `first_id` that is not above it. `served_node`: of series of a device outside the nodes, the node that the
-- device, its outlet or its port serves; `/` and `node`, which is no node, if they name a job that they do
-- not belong to.
CREATE TABLE series_block (
    first_id int8 PRIMARY KEY,
    shape_id int8 NOT NULL REFERENCES series_shape,
    job_key int8,
    node text NOT NULL,
    job_id text,
    served_node text
);
CREATE INDEX series_block_by_job ON series_block (job_key, node);
CREATE INDEX series_block_by_shape ON series_block (shape_id);
-- The series of nodes, which are few beside those of jobs.
CREATE INDEX series_block_by_measured_node ON series_block (coalesce(served_node, node)) WHERE job_key IS NULL;

-- The id of the next series. An id is never used again, also when its series was deleted. A transaction takes
-- its ids last: the row is locked until its end.
CREATE TABLE series_counter (
    next_id int8 NOT NULL
);
INSERT INTO series_counter VALUES (1);

-- `measured_node`: the node that the values are about. It is not `node`, which took the samples, for a device
-- that serves another node.
CREATE VIEW series AS
SELECT first_id + position AS series_id, node, metric, job_key, job_id, labels, role, coalesce(served_node, node) AS measured_node
FROM series_block JOIN series_shape_member USING (shape_id);
