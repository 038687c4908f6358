-- Version 2 for SQLite: what became of every sample, by job and source. Mirrors postgres_2.sql.

-- What is not stored although it was taken and found room in a batch: skipped by the agent (its outbox was full, or no
-- collector took the frame), rejected by the collector. The reasons and times are in `loss`.
ALTER TABLE ledger ADD COLUMN skipped INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ledger ADD COLUMN rejected INTEGER NOT NULL DEFAULT 0;

ALTER TABLE loss ADD COLUMN source text;
CREATE INDEX loss_by_job ON loss (job_key, time);

-- Samples of the session that are stored: counted, while `ledger_balance` reckons.
ALTER TABLE session ADD COLUMN stored INTEGER NOT NULL DEFAULT 0;

-- due = missed + absent + dropped + skipped + rejected + stored, up to the frame that brought the newest tally.
CREATE VIEW ledger_balance AS
SELECT session_id, job_key, source, due, taken, late, missed, absent, dropped, skipped, rejected,
       taken - dropped - skipped - rejected AS stored
FROM ledger;
