-- Version 6 for PostgreSQL and TimescaleDB, behind all/6.sql.

ALTER INDEX samples_apart_by_series RENAME TO samples_quarantine_by_series;

UPDATE plan_change SET
    reason = substr(actor, strpos(actor, ': ') + 2),
    actor = nullif(substr(actor, 1, strpos(actor, ': ') - 1), 'unknown user')
WHERE cause = 'refused' AND strpos(actor, ': ') > 0;

-- due = missed + absent + dropped + skipped + rejected + quarantined + stored + unknown. Where samples came after the newest
-- tally, they were due and taken. `unknown` were taken, and nothing tells what became of them.
CREATE VIEW ledger_balance AS
SELECT session_id, job_key, source, due + counted - taken AS due, counted AS taken, late, missed, absent, dropped, skipped,
       rejected, all_stored AS stored, quarantined,
       counted - dropped - skipped - rejected - quarantined - all_stored AS unknown, handle
FROM ledger LEFT JOIN session USING (session_id)
CROSS JOIN LATERAL (SELECT ledger.stored + coalesce((session.pending ->> ledger_id::text)::int8, 0) AS all_stored) AS counts
CROSS JOIN LATERAL (SELECT greatest(taken, dropped + skipped + rejected + quarantined + all_stored) AS counted) AS sums;
