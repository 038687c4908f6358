-- Version 6, for every store: the field's names. Tables and columns are renamed, no row of samples is written.

DROP VIEW ledger_balance;

-- Samples whose times are out of range, in quarantine.
ALTER TABLE samples_apart RENAME TO samples_quarantine;
ALTER TABLE ledger RENAME COLUMN apart TO quarantined;

-- `actor` is the user or the component that caused the change.
ALTER TABLE mark RENAME COLUMN by_whom TO actor;
ALTER TABLE plan_change RENAME COLUMN by_whom TO actor;

-- The reason for which a request was refused (cause 'refused'). Up to version 5 the user and the reason shared a column.
ALTER TABLE plan_change ADD COLUMN reason text;
