-- Version 5 for SQLite: the ledger counts what is stored, sessions and jobs end also when their agents do not say so.
-- Mirrors postgres_5.sql.

-- A line is one source of one handle of a session. A job whose cgroups go and return has another handle each time, whose
-- tallies begin at 0. `handle` is null for the node's own sources, and for jobs of version 4 that nothing was heard of since.
-- `stored` counts the rows of `samples` in the transaction that writes them.
DROP VIEW ledger_balance;
CREATE TABLE ledger_5 (
    ledger_id INTEGER PRIMARY KEY,
    session_id text NOT NULL,
    job_key INTEGER,
    handle INTEGER,
    source text NOT NULL,
    due INTEGER NOT NULL DEFAULT 0,
    taken INTEGER NOT NULL DEFAULT 0,
    late INTEGER NOT NULL DEFAULT 0,
    missed INTEGER NOT NULL DEFAULT 0,
    absent INTEGER NOT NULL DEFAULT 0,
    dropped INTEGER NOT NULL DEFAULT 0,
    skipped INTEGER NOT NULL DEFAULT 0,
    rejected INTEGER NOT NULL DEFAULT 0,
    apart INTEGER NOT NULL DEFAULT 0,
    stored INTEGER NOT NULL DEFAULT 0
);
INSERT INTO ledger_5 (session_id, job_key, source, due, taken, late, missed, absent, dropped, skipped, rejected, apart, stored)
SELECT session_id, job_key, source, due, taken, late, missed, absent, dropped, skipped, rejected, apart,
       max(taken - dropped - skipped - rejected - apart, 0)
FROM ledger;
DROP TABLE ledger;
ALTER TABLE ledger_5 RENAME TO ledger;
CREATE UNIQUE INDEX ledger_identity ON ledger (session_id, coalesce(handle, -1), coalesce(job_key, 0), source);
CREATE INDEX ledger_by_job ON ledger (job_key);

-- `ended` is null while the agent may still send. `end_reason`: stopped (it said so), superseded (another session of the node
-- began later), silent (nothing was heard for long). A session that sends again is open again.
ALTER TABLE session ADD COLUMN last_sample INTEGER;
ALTER TABLE session ADD COLUMN ended INTEGER;
ALTER TABLE session ADD COLUMN end_reason text;
CREATE INDEX session_open ON session (node) WHERE ended IS NULL;
CREATE INDEX session_by_node ON session (node, started);

-- The session and the handle that follow the job on the node. `lost`: it has ended because its agent did, at a time that is
-- not known.
ALTER TABLE job_node ADD COLUMN session_id text;
ALTER TABLE job_node ADD COLUMN handle INTEGER;
ALTER TABLE job_node ADD COLUMN lost INTEGER NOT NULL DEFAULT 0;
CREATE INDEX job_node_open ON job_node (session_id) WHERE ended IS NULL;
CREATE INDEX job_node_lost ON job_node (session_id) WHERE lost;

-- A loss of which the number is not known has 0 samples and the reason `unknown`: of an agent that was killed.
CREATE INDEX loss_unknown ON loss (session_id) WHERE reason = 'unknown';

-- due = missed + absent + dropped + skipped + rejected + apart + stored + unknown. Where samples came after the newest tally,
-- they were due and taken. `unknown` were taken, and nothing says what became of them.
CREATE VIEW ledger_balance AS
SELECT session_id, job_key, source, due + counted - taken AS due, counted AS taken, late, missed, absent, dropped, skipped,
       rejected, stored, apart, counted - dropped - skipped - rejected - apart - stored AS unknown, handle
FROM (SELECT ledger.*, max(taken, dropped + skipped + rejected + apart + stored) AS counted FROM ledger);
