-- Nodes, metrics, and jobs with the nodes on which they ran. In all tables of SQLite times are nanoseconds
-- since the epoch; names and columns are those of postgres/.

CREATE TABLE node (
    node text PRIMARY KEY,
    first_seen INTEGER NOT NULL
);

CREATE TABLE metric (
    metric text PRIMARY KEY,
    unit text NOT NULL,
    kind text NOT NULL
);

-- `nodes`: as the scheduler writes them; the nodes on which the job was followed are in `job_node`.
-- `memory_bytes`: on each node. `gpus`: on all nodes. `display_id`: the id as the scheduler prints it, where
-- it differs from `job_id`: `4009_1`, `4009+1`. `unread`: what the scheduler said and could not be read.
-- `run`: the command of `polymeter run`, a JSON object.
CREATE TABLE job (
    job_key INTEGER PRIMARY KEY,
    job_id text NOT NULL,
    cluster text,
    owner text,
    owner_uid INTEGER,
    started INTEGER NOT NULL,
    ended INTEGER,
    account text,
    queue text,
    nodes text,
    cores INTEGER,
    state text,
    exit_code INTEGER,
    exit_signal INTEGER,
    name text,
    display_id text,
    time_limit_s INTEGER,
    memory_bytes INTEGER,
    gpus INTEGER,
    restarts INTEGER,
    unread text,
    run text,
    scheduler text
);
CREATE INDEX job_by_id ON job (job_id);
CREATE INDEX job_by_display_id ON job (display_id) WHERE display_id IS NOT NULL;
CREATE INDEX job_by_start ON job (started, job_key);
CREATE INDEX job_by_name ON job (name, owner_uid, started, job_key) WHERE name IS NOT NULL;
CREATE INDEX job_by_end ON job (ended, job_key);
CREATE INDEX job_by_elapsed ON job ((ended - started), job_key);
CREATE INDEX job_by_cores ON job ((coalesce(cores, 0)), job_key);
CREATE INDEX job_by_owner ON job (owner);
CREATE INDEX job_by_owner_uid ON job (owner_uid, started, job_key);
CREATE INDEX job_by_account ON job (account);

-- `session_id` and `handle` follow the job on the node. `lost`: it has ended because its agent did, at a time
-- that is not known. `job_cores`, `job_gpus`: what the scheduler gave to the job there.
CREATE TABLE job_node (
    job_key INTEGER NOT NULL REFERENCES job,
    node text NOT NULL,
    started INTEGER NOT NULL,
    ended INTEGER,
    session_id text,
    handle INTEGER,
    lost INTEGER NOT NULL DEFAULT 0,
    job_cores INTEGER,
    job_gpus INTEGER,
    PRIMARY KEY (job_key, node)
);
CREATE INDEX job_node_by_node ON job_node (node, started);
CREATE INDEX job_node_open ON job_node (session_id) WHERE ended IS NULL;
CREATE INDEX job_node_lost ON job_node (session_id) WHERE lost;

-- The times of jobs on their nodes. A node is shared if another job ran there for more than 5 s meanwhile, of
-- the thousand that started before the job and of those that started later. A shorter overlap does not count:
-- the agent notices the end of a job late.
CREATE VIEW polymeter_job_node AS
SELECT own.job_key, own.node, own.started, own.ended,
       coalesce(own.started < (
           SELECT max(coalesce(earlier.ended, 9223372036854775807)) FROM (
               SELECT other.ended FROM job_node AS other
               WHERE other.node = own.node AND other.started <= own.started AND other.job_key <> own.job_key
               ORDER BY other.started DESC LIMIT 1000
           ) AS earlier) - 5000000000, 0)
       OR coalesce((SELECT min(later.started) FROM job_node AS later
                    WHERE later.node = own.node AND later.started > own.started)
                   < coalesce(own.ended, 9223372036854775807) - 5000000000, 0) AS is_shared
FROM job_node AS own;

-- The ends of jobs for which a collector has to run a command. A row is inserted together with the end, and
-- deleted after the command. `noticed`: the time at which the end was stored. `claimed_until`: until then a
-- collector runs the command. `attempts`: the number of claims.
CREATE TABLE job_end (
    job_key INTEGER PRIMARY KEY REFERENCES job,
    noticed INTEGER NOT NULL,
    claimed_until INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0
);

-- What a job used that has ended, as its report has it; a figure that is not known is null. A row is inserted
-- together with the end; without `elapsed_s` no collector has summarised the job. `claimed_until`: until then
-- a collector does. `attempts`: the number of claims. `array_id`: the array or heterogeneous job to which it
-- belongs. `nodes` is a number. `cores`, `gpus`: on all nodes. `memory_...`: on the node with the most.
-- `gpu_s`: the time of all GPUs multiplied by their utilization. `energy_j`: on all nodes; on one that was shared
-- an estimate.
CREATE TABLE job_usage (
    job_key INTEGER PRIMARY KEY REFERENCES job,
    ended INTEGER NOT NULL,
    claimed_until INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0,
    array_id text,
    elapsed_s REAL,
    nodes REAL,
    cores REAL,
    cpu_s REAL,
    cores_peak REAL,
    memory_request_bytes REAL,
    memory_used_bytes REAL,
    memory_bound_bytes REAL,
    gpus REAL,
    gpus_used REAL,
    gpu_s REAL,
    energy_j REAL
);
CREATE INDEX job_usage_by_end ON job_usage (ended);
CREATE INDEX job_usage_missing ON job_usage (ended) WHERE elapsed_s IS NULL;

-- The energy of a job that has ended, by node and source, as its report has it. `part`: `node` for the whole
-- node, `processors`, `memory`, `gpus`, or `unknown` for a sensor of a device. `source`: the metric, behind that
-- of the device if `devices` measured it. `is_counted`: the sum of these is the energy of the job; others stand
-- beside them. `is_estimate`: the node was shared, and its energy divided by CPU time.
CREATE TABLE job_energy (
    job_key INTEGER NOT NULL REFERENCES job,
    node text NOT NULL,
    part text NOT NULL,
    source text NOT NULL,
    devices text,
    joules REAL NOT NULL,
    error_joules REAL,
    delay_s REAL,
    is_counted boolean NOT NULL,
    is_estimate boolean NOT NULL
);
CREATE INDEX job_energy_by_job ON job_energy (job_key);

-- The notices to persons. A row is inserted before the notice is sent: there is one for each rule and what it
-- is about, such as a job. `result`: what became of it; null while it is sent, or if its collector ended
-- meanwhile.
CREATE TABLE notice (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    rule text NOT NULL,
    about text NOT NULL,
    job_key INTEGER NOT NULL REFERENCES job,
    uid INTEGER,
    recipient text NOT NULL,
    subject text NOT NULL,
    text text NOT NULL,
    created INTEGER NOT NULL,
    result text,
    UNIQUE (rule, about)
);
CREATE INDEX notice_by_user ON notice (uid, number);

-- The rules of which a user wants no notices. `rule`: its id, or `*` for all.
CREATE TABLE notice_opt_out (
    uid INTEGER NOT NULL,
    rule text NOT NULL,
    PRIMARY KEY (uid, rule)
);
