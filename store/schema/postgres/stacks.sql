-- Call stacks of jobs: functions, stacks as nodes of a tree, and their samples. The names are data of the job,
-- therefore each row belongs to one. Ids are digests of what they name within the job: its nodes share them.

-- `name`: null without a symbol. `module`: the base name of the file, `[kernel]` or `[jit]`; null if unknown.
CREATE TABLE stack_function (
    job_key int8 NOT NULL,
    function_id int8 NOT NULL,
    name text,
    module text,
    PRIMARY KEY (job_key, function_id)
);

-- `parent_id`: the stack of the caller; null for an outermost function.
CREATE TABLE stack_node (
    job_key int8 NOT NULL,
    stack_id int8 NOT NULL,
    parent_id int8,
    function_id int8 NOT NULL,
    PRIMARY KEY (job_key, stack_id)
);

-- `time`: the middle of the interval, by which it belongs to a span. `samples` are those of `stack_sample`;
-- the time of a stack is its count multiplied by `period_us`. `lost`: samples that did not arrive.
-- `throttled`: how often the kernel slowed the sampling. `cut`: samples without their outermost functions.
-- `unresolved`: samples whose innermost function has no symbol.
CREATE TABLE stack_interval (
    job_key int8 NOT NULL,
    time timestamptz NOT NULL,
    interval_id int8 NOT NULL,
    node text NOT NULL,
    metric text NOT NULL,
    length_us int8 NOT NULL,
    period_us int8 NOT NULL,
    samples int8 NOT NULL,
    lost int8 NOT NULL,
    throttled int8 NOT NULL,
    cut int8 NOT NULL,
    unresolved int8 NOT NULL
);
CREATE INDEX stack_interval_by_job ON stack_interval (job_key, time);
CREATE INDEX stack_interval_by_time ON stack_interval (time);

-- Without a unique index, as `samples`. `time` and `interval_id` are those of the interval.
CREATE TABLE stack_sample (
    job_key int8 NOT NULL,
    time timestamptz NOT NULL,
    interval_id int8 NOT NULL,
    process int8 NOT NULL,
    stack_id int8 NOT NULL,
    count int8 NOT NULL
);
CREATE INDEX stack_sample_by_job ON stack_sample (job_key, time);
