-- Version 7 for PostgreSQL and TimescaleDB: rollups of samples.
--
-- `samples_10s`, `samples_1min` and `samples_1h` have one row per series and bucket. `increase` is for counters: the last
-- value minus the first. A counter that restarted has a value below its predecessor; it is counted from 0 then. Where
-- it has since exceeded its earlier values, the part before the restart is unknown and left out.

-- The state of the rollups. Buckets that begin before `final_before` are not computed again: retention removed their samples.
CREATE TABLE rollup (
    relation text PRIMARY KEY,
    final_before timestamptz
);
INSERT INTO rollup (relation) VALUES ('samples_10s'), ('samples_1min'), ('samples_1h');

/* ROLLUPS */
