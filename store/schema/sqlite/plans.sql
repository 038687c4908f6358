-- Changes of the plan, and marks. A change of plan changes many metrics at once: such a set is stored once,
-- and found by a digest of its members.

CREATE TABLE plan_change_set (
    set_id INTEGER PRIMARY KEY,
    digest text NOT NULL UNIQUE
);
-- `old_window_us`, `new_window_us`: the length of the windows that are sent; null if each sample is sent.
CREATE TABLE plan_change_set_member (
    set_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    metric text NOT NULL,
    old_period_us INTEGER,
    new_period_us INTEGER,
    old_window_us INTEGER,
    new_window_us INTEGER,
    PRIMARY KEY (set_id, position)
) WITHOUT ROWID;

-- The changes of the same time, node, job and cause. `actor`: the user or the component that caused them.
-- `reason`: why a request was refused (cause `refused`). `level`: `step` or `task` for a change of each step
-- or task of the job; null for a whole job or a node.
CREATE TABLE plan_change_event (
    time INTEGER NOT NULL,
    until INTEGER,
    job_key INTEGER,
    set_id INTEGER NOT NULL,
    node text NOT NULL,
    job_id text,
    cause text NOT NULL,
    actor text,
    reason text,
    level text
);
CREATE INDEX plan_change_event_by_node ON plan_change_event (node, time);
CREATE INDEX plan_change_event_by_job ON plan_change_event (job_key, time) WHERE job_key IS NOT NULL;
CREATE INDEX plan_change_event_by_set ON plan_change_event (set_id);

CREATE VIEW plan_change AS
SELECT time, node, job_key, job_id, metric, old_period_us, new_period_us, cause, actor, until, reason, level,
    old_window_us, new_window_us
FROM plan_change_event JOIN plan_change_set_member ON plan_change_set_member.set_id = plan_change_event.set_id;

-- `actor`: the user or the component that made the mark.
CREATE TABLE mark (
    time INTEGER NOT NULL,
    node text NOT NULL,
    job_key INTEGER,
    job_id text,
    name text NOT NULL,
    actor text,
    detail text
);
CREATE INDEX mark_by_job ON mark (job_key, time);
