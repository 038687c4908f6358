-- Changes of the plan, and marks. A change of plan changes many metrics at once: such a set is stored once,
-- and found by a digest of its members.

CREATE TABLE plan_change_set (
    set_id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest text NOT NULL UNIQUE
);
-- `old_window_us`, `new_window_us`: the length of the windows that are sent; null if each sample is sent.
CREATE TABLE plan_change_set_member (
    set_id int8 NOT NULL,
    position int4 NOT NULL,
    metric text NOT NULL,
    old_period_us int8,
    new_period_us int8,
    old_window_us int8,
    new_window_us int8,
    PRIMARY KEY (set_id, position),
    FOREIGN KEY (set_id) REFERENCES plan_change_set ON DELETE CASCADE
);

-- The changes of the same time, node, job and cause. `actor`: the user or the component that caused them.
-- `reason`: why a request was refused (cause `refused`). `level`: `step` or `task` for a change of each step
-- or task of the job; null for a whole job or a node.
CREATE TABLE plan_change_event (
    time timestamptz NOT NULL,
    until timestamptz,
    job_key int8,
    set_id int8 NOT NULL REFERENCES plan_change_set,
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
FROM plan_change_event JOIN plan_change_set_member USING (set_id);

-- `actor`: the user or the component that made the mark.
CREATE TABLE mark (
    time timestamptz NOT NULL,
    node text NOT NULL,
    job_key int8,
    job_id text,
    name text NOT NULL,
    actor text,
    detail jsonb
);
CREATE INDEX mark_by_job ON mark (job_key, time);
