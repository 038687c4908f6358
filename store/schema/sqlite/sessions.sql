-- Sessions of agents, and the ledger: what became of each sample.

-- `last_sequence` is written in the transaction that stores the frames up to it. `ended` is null while the
-- agent may still send. `end_reason`: stopped (it said so), superseded (another session of the node began
-- later), silent (nothing was heard for long). A session that sends again is open again. `collector_id`: the
-- collector that stored its last frame. `clock_offset_us`: the time by which the clock of its node is ahead of
-- the collector's, where that is much. `node_cpus`, `node_cores`: of the node; a core has several CPUs if
-- these are hardware threads. `pending` as in PostgreSQL: it stays empty, since a row of the ledger costs no
-- more than a sample here. `roof_...`: what `polymeter calibrate` measured on the node.
CREATE TABLE session (
    session_key INTEGER PRIMARY KEY,
    session_id text NOT NULL UNIQUE,
    node text NOT NULL,
    agent_version text NOT NULL,
    started INTEGER NOT NULL,
    last_sequence INTEGER NOT NULL,
    last_seen INTEGER NOT NULL,
    stored INTEGER NOT NULL DEFAULT 0,
    last_sample INTEGER,
    ended INTEGER,
    end_reason text,
    pending text NOT NULL DEFAULT '{}',
    collector_id text,
    clock_offset_us INTEGER,
    node_cpus INTEGER,
    node_cores INTEGER,
    roof_memory_bytes_per_s INTEGER,
    roof_double_flop_per_s INTEGER,
    roof_single_flop_per_s INTEGER
);
CREATE INDEX session_open ON session (node) WHERE ended IS NULL;
CREATE INDEX session_skewed ON session (node) WHERE clock_offset_us IS NOT NULL;
CREATE INDEX session_by_node ON session (node, started);

CREATE TABLE ledger_source (
    source_id INTEGER PRIMARY KEY,
    source text NOT NULL UNIQUE
);

-- A line is one source of one handle of a session. A job whose cgroups go and return has another handle each
-- time, whose tallies begin at 0. `handle` is null for the node's own sources. `stored` counts the rows of
-- `samples` in the transaction that writes them. `skipped`: by the agent, whose outbox was full or whose
-- frame no collector took. `rejected`: by the collector; the reasons and times are in `loss`. A count of 0 is
-- null.
CREATE TABLE ledger_line (
    ledger_id INTEGER PRIMARY KEY,
    session_key INTEGER NOT NULL,
    job_key INTEGER,
    handle INTEGER,
    due INTEGER,
    taken INTEGER,
    late INTEGER,
    missed INTEGER,
    absent INTEGER,
    dropped INTEGER,
    not_kept INTEGER,
    skipped INTEGER,
    rejected INTEGER,
    quarantined INTEGER,
    stored INTEGER,
    source_id INTEGER NOT NULL
);
CREATE UNIQUE INDEX ledger_line_identity
    ON ledger_line (session_key, coalesce(handle, -1), coalesce(job_key, 0), source_id);
CREATE INDEX ledger_line_by_job ON ledger_line (job_key);

CREATE VIEW ledger AS
SELECT session_id, job_key, source, coalesce(due, 0) AS due, coalesce(taken, 0) AS taken, coalesce(late, 0) AS late,
       coalesce(missed, 0) AS missed, coalesce(absent, 0) AS absent, coalesce(dropped, 0) AS dropped, coalesce(not_kept, 0) AS not_kept,
       coalesce(skipped, 0) AS skipped, coalesce(rejected, 0) AS rejected, coalesce(quarantined, 0) AS quarantined,
       ledger_id, handle, coalesce(ledger_line.stored, 0) AS stored
FROM ledger_line
JOIN session ON session.session_key = ledger_line.session_key
JOIN ledger_source ON ledger_source.source_id = ledger_line.source_id;

-- due = missed + absent + dropped + not_kept + skipped + rejected + quarantined + stored + unknown. Where samples came
-- after the newest tally, they were due and taken. `unknown` were taken, and nothing tells what became of
-- them.
CREATE VIEW ledger_balance AS
SELECT session_id, job_key, source, due + counted - taken AS due, counted AS taken, late, missed, absent, dropped, not_kept,
       skipped, rejected, stored, quarantined,
       counted - dropped - not_kept - skipped - rejected - quarantined - stored AS unknown, handle
FROM (SELECT ledger.*, max(taken, dropped + not_kept + skipped + rejected + quarantined + stored) AS counted FROM ledger);

-- Losses of samples. One of which the number is not known, of an agent that was killed, has 0 samples and the
-- reason `unknown`.
CREATE TABLE loss (
    time INTEGER NOT NULL,
    node text NOT NULL,
    session_id text NOT NULL,
    job_key INTEGER,
    samples INTEGER NOT NULL,
    reason text NOT NULL,
    first_time INTEGER NOT NULL,
    last_time INTEGER NOT NULL,
    source text
);
CREATE INDEX loss_by_node ON loss (node, time);
CREATE INDEX loss_by_job ON loss (job_key, time);
CREATE INDEX loss_unknown ON loss (session_id) WHERE reason = 'unknown';
CREATE INDEX loss_by_time ON loss (time);
CREATE INDEX loss_without_source ON loss (node, last_time) WHERE source IS NULL;
