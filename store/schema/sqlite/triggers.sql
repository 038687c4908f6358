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
