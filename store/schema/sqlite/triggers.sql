-- Triggers that fired. `trigger_id` is that of the intervals in `kept_interval` that were kept because of it.
-- `node` is where it fired, at `time` by that node's clock; `started` and `ended` bound what all nodes of the
-- job were asked to keep, and are null if nothing was. `actor` added the rule, null for the site. `nodes_asked`
-- and `nodes_missing`, a JSON object of nodes and reasons, are null until the collector has asked the other
-- nodes.
CREATE TABLE trigger_firing (
    trigger_id INTEGER NOT NULL,
    job_key INTEGER NOT NULL,
    node text NOT NULL,
    time INTEGER NOT NULL,
    rule text NOT NULL,
    actor text,
    started INTEGER,
    ended INTEGER,
    why text NOT NULL,
    actions text NOT NULL,
    nodes_asked INTEGER,
    nodes_missing text
);
CREATE INDEX trigger_firing_by_job ON trigger_firing (job_key);
CREATE INDEX trigger_firing_by_time ON trigger_firing (time);

-- Values of jobs' nodes in an interval of 5 s that ended at `ended`, which collectors with rules about
-- stragglers exchange while several run. `nodes`: an array in JSON of [node, amount, weight] of the nodes
-- whose agents send to this collector; the value of a node is the quotient. Rows are removed a minute after
-- `written`.
CREATE TABLE straggler_part (
    job_key INTEGER NOT NULL,
    metric text NOT NULL,
    ended INTEGER NOT NULL,
    collector_id text NOT NULL,
    nodes text NOT NULL,
    written INTEGER NOT NULL,
    PRIMARY KEY (job_key, metric, ended, collector_id)
);
CREATE INDEX straggler_part_by_time ON straggler_part (written);

-- The last firing of each rule of collectors for a job, so that one collector fires, and the firings on
-- `day`, counted from the epoch.
CREATE TABLE straggler_firing (
    job_key INTEGER NOT NULL,
    rule text NOT NULL,
    node text NOT NULL,
    fired INTEGER NOT NULL,
    day INTEGER NOT NULL,
    firings INTEGER NOT NULL,
    PRIMARY KEY (job_key, rule)
);
