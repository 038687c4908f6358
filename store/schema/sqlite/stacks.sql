-- Call stacks of jobs: functions, stacks as nodes of a tree, and their samples. The names are data of the job,
-- therefore each row belongs to one. Ids are digests of what they name within the job: its nodes share them.

-- `name`: null without a symbol. `module`: the base name of the file, `[kernel]` or `[jit]`; null if unknown.
CREATE TABLE stack_function (
    job_key INTEGER NOT NULL,
    function_id INTEGER NOT NULL,
    name text,
    module text,
    PRIMARY KEY (job_key, function_id)
) WITHOUT ROWID;

-- `parent_id`: the stack of the caller; null for an outermost function.
CREATE TABLE stack_node (
    job_key INTEGER NOT NULL,
    stack_id INTEGER NOT NULL,
    parent_id INTEGER,
    function_id INTEGER NOT NULL,
    PRIMARY KEY (job_key, stack_id)
) WITHOUT ROWID;

-- `time`: the middle of the interval, by which it belongs to a span. `samples` are those of `stack_sample`;
-- the time of a stack is its count multiplied by `period_us`. `lost`: samples that did not arrive.
-- `throttled`: how often the kernel slowed the sampling. `cut`: samples without their outermost functions.
-- `unresolved`: samples whose innermost function has no symbol.
CREATE TABLE stack_interval (
    job_key INTEGER NOT NULL,
    time INTEGER NOT NULL,
    interval_id INTEGER NOT NULL,
    node text NOT NULL,
    metric text NOT NULL,
    length_us INTEGER NOT NULL,
    period_us INTEGER NOT NULL,
    samples INTEGER NOT NULL,
    lost INTEGER NOT NULL,
    throttled INTEGER NOT NULL,
    cut INTEGER NOT NULL,
    unresolved INTEGER NOT NULL
);
CREATE INDEX stack_interval_by_job ON stack_interval (job_key, time);
CREATE INDEX stack_interval_by_time ON stack_interval (time);

-- `time` and `interval_id` are those of the interval.
CREATE TABLE stack_sample (
    job_key INTEGER NOT NULL,
    time INTEGER NOT NULL,
    interval_id INTEGER NOT NULL,
    process INTEGER NOT NULL,
    stack_id INTEGER NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (job_key, time, interval_id, process, stack_id)
) WITHOUT ROWID;
