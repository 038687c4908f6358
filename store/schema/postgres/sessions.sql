-- Sessions of agents, and the ledger: what became of each sample.

-- `last_sequence` is written in the transaction that stores the frames up to it. `pending`: samples that are
-- stored and not yet counted in `ledger_line`, by `ledger_id`. `ended` is null while the agent may still
-- send. `end_reason`: stopped (it said so), superseded (another session of the node began later), silent
-- (nothing was heard for long). A session that sends again is open again. `collector_id`: the collector that
-- stored its last frame. `clock_offset_us`: the time by which the clock of its node is ahead of the
-- collector's, where that is much. `node_cpus`, `node_cores`: of the node; a core has several CPUs if these
-- are hardware threads. `roof_...`: what `polymeter calibrate` measured on the node.
CREATE TABLE session (
    session_id text PRIMARY KEY,
    node text NOT NULL,
    agent_version text NOT NULL,
    started timestamptz NOT NULL,
    last_sequence int8 NOT NULL,
    last_seen timestamptz NOT NULL,
    stored int8 NOT NULL DEFAULT 0,
    pending jsonb NOT NULL DEFAULT '{}',
    last_sample timestamptz,
    ended timestamptz,
    end_reason text,
    session_key int8 GENERATED ALWAYS AS IDENTITY,
    collector_id text,
    clock_offset_us int8,
    node_cpus int8,
    node_cores int8,
    roof_memory_bytes_per_s int8,
    roof_double_flop_per_s int8,
    roof_single_flop_per_s int8
);
CREATE INDEX session_open ON session (node) WHERE ended IS NULL;
CREATE INDEX session_skewed ON session (node) WHERE clock_offset_us IS NOT NULL;
CREATE INDEX session_by_node ON session (node, started);
CREATE UNIQUE INDEX session_by_key ON session (session_key);

CREATE TABLE ledger_source (
    source_id int4 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source text NOT NULL UNIQUE
);

-- A line is one source of one handle of a session. A job whose cgroups go and return has another handle each
-- time, whose tallies begin at 0. `handle` is null for the node's own sources. `stored` counts the rows of
-- `samples`, together with `session.pending`, in the transaction that writes them. `skipped`: by the agent,
-- whose outbox was full or whose frame no collector took. `rejected`: by the collector; the reasons and times
-- are in `loss`. A count of 0 is null.
--
-- The counts of a running job change every ten seconds. There is room for other versions of a line in its
-- page, so that the indexes need not change.
CREATE TABLE ledger_line (
    ledger_id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_key int8 NOT NULL,
    job_key int8,
    handle int8,
    due int8,
    taken int8,
    late int8,
    missed int8,
    absent int8,
    dropped int8,
    not_kept int8,
    skipped int8,
    rejected int8,
    quarantined int8,
    stored int8,
    source_id int4 NOT NULL
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX ledger_line_identity
    ON ledger_line (session_key, coalesce(handle, -1), coalesce(job_key, 0), source_id);
CREATE INDEX ledger_line_by_job ON ledger_line (job_key);

CREATE VIEW ledger AS
SELECT session_id, job_key, source, coalesce(due, 0) AS due, coalesce(taken, 0) AS taken, coalesce(late, 0) AS late,
       coalesce(missed, 0) AS missed, coalesce(absent, 0) AS absent, coalesce(dropped, 0) AS dropped, coalesce(not_kept, 0) AS not_kept, coalesce(skipped, 0) AS skipped,
       coalesce(rejected, 0) AS rejected, coalesce(quarantined, 0) AS quarantined, ledger_id, handle,
       coalesce(ledger_line.stored, 0) AS stored
FROM ledger_line JOIN session USING (session_key) JOIN ledger_source USING (source_id);

-- due = missed + absent + dropped + not_kept + skipped + rejected + quarantined + stored + unknown. Where samples came
-- after the newest tally, they were due and taken. `unknown` were taken, and nothing tells what became of
-- them.
CREATE VIEW ledger_balance AS
SELECT session_id, job_key, source, due + counted - taken AS due, counted AS taken, late, missed, absent, dropped, not_kept, skipped,
       rejected, all_stored AS stored, quarantined,
       counted - dropped - not_kept - skipped - rejected - quarantined - all_stored AS unknown, handle
FROM (
    SELECT session_id, job_key, source, coalesce(due, 0) AS due, coalesce(taken, 0) AS taken, coalesce(late, 0) AS late,
           coalesce(missed, 0) AS missed, coalesce(absent, 0) AS absent, coalesce(dropped, 0) AS dropped, coalesce(not_kept, 0) AS not_kept,
           coalesce(skipped, 0) AS skipped, coalesce(rejected, 0) AS rejected, coalesce(quarantined, 0) AS quarantined, handle,
           coalesce(ledger_line.stored, 0) + coalesce((pending ->> ledger_id::text)::int8, 0) AS all_stored
    FROM ledger_line JOIN session USING (session_key) JOIN ledger_source USING (source_id)
) AS line
CROSS JOIN LATERAL (SELECT greatest(taken, dropped + not_kept + skipped + rejected + quarantined + all_stored) AS counted) AS sums;

-- Losses of samples. One of which the number is not known, of an agent that was killed, has 0 samples and the
-- reason `unknown`.
CREATE TABLE loss (
    time timestamptz NOT NULL,
    node text NOT NULL,
    session_id text NOT NULL,
    job_key int8,
    samples int8 NOT NULL,
    reason text NOT NULL,
    first_time timestamptz NOT NULL,
    last_time timestamptz NOT NULL,
    source text
);
CREATE INDEX loss_by_node ON loss (node, time);
CREATE INDEX loss_by_job ON loss (job_key, time);
CREATE INDEX loss_unknown ON loss (session_id) WHERE reason = 'unknown';
CREATE INDEX loss_by_time ON loss (time);
CREATE INDEX loss_without_source ON loss (node, last_time) WHERE source IS NULL;
