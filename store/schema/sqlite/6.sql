-- Version 6 for SQLite, behind all/6.sql.

DROP INDEX samples_apart_by_series;
CREATE INDEX samples_quarantine_by_series ON samples_quarantine (series_id, received);

UPDATE plan_change SET
    reason = substr(actor, instr(actor, ': ') + 2),
    actor = nullif(substr(actor, 1, instr(actor, ': ') - 1), 'unknown user')
WHERE cause = 'refused' AND instr(actor, ': ') > 0;

-- As in PostgreSQL. SQLite counts in `ledger` at once, since a row of the ledger costs no more than a sample.
ALTER TABLE session ADD COLUMN pending text NOT NULL DEFAULT '{}';

-- due = missed + absent + dropped + skipped + rejected + quarantined + stored + unknown. Where samples came after the newest
-- tally, they were due and taken. `unknown` were taken, and nothing tells what became of them.
CREATE VIEW ledger_balance AS
SELECT session_id, job_key, source, due + counted - taken AS due, counted AS taken, late, missed, absent, dropped, skipped,
       rejected, stored, quarantined, counted - dropped - skipped - rejected - quarantined - stored AS unknown, handle
FROM (SELECT ledger.*, max(taken, dropped + skipped + rejected + quarantined + stored) AS counted FROM ledger);
