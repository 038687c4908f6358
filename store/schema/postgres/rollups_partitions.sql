-- The tables of rollups with partitions: a day of `rollup_10s`, a month of `rollup_1min`.

CREATE TABLE rollup_10s (
    series_id int8 NOT NULL,
    time timestamptz NOT NULL,
    count int8 NOT NULL,
    min float8 NOT NULL,
    max float8 NOT NULL,
    integral float8 NOT NULL,
    covered_s float8 NOT NULL,
    first float8 NOT NULL,
    last float8 NOT NULL,
    PRIMARY KEY (series_id, time)
) PARTITION BY RANGE (time);
CREATE INDEX rollup_10s_by_time ON rollup_10s USING brin (time);

CREATE TABLE rollup_1min (
    series_id int8 NOT NULL,
    time timestamptz NOT NULL,
    count int8 NOT NULL,
    min float8 NOT NULL,
    max float8 NOT NULL,
    integral float8 NOT NULL,
    covered_s float8 NOT NULL,
    first float8 NOT NULL,
    last float8 NOT NULL,
    PRIMARY KEY (series_id, time)
) PARTITION BY RANGE (time);
CREATE INDEX rollup_1min_by_time ON rollup_1min USING brin (time);

CREATE TABLE rollup_1h (
    series_id int8 NOT NULL,
    time timestamptz NOT NULL,
    count int8 NOT NULL,
    min float8 NOT NULL,
    max float8 NOT NULL,
    integral float8 NOT NULL,
    covered_s float8 NOT NULL,
    first float8 NOT NULL,
    last float8 NOT NULL,
    PRIMARY KEY (series_id, time)
);
CREATE INDEX rollup_1h_by_time ON rollup_1h USING brin (time);

-- Creates the partitions of `rollup_10s` (a day) and `rollup_1min` (a month) that contain `instant`, in UTC,
-- unless they are there.
CREATE FUNCTION polymeter_create_rollup_partitions(instant timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    part record;
BEGIN
    FOR part IN
        SELECT parent, parent || '_' || to_char(begin_at, format) AS name, begin_at AT TIME ZONE 'UTC' AS begin_at,
               (begin_at + length) AT TIME ZONE 'UTC' AS end_at
        FROM (VALUES ('rollup_10s', 'day', 'YYYYMMDD', interval '1 day'),
                     ('rollup_1min', 'month', 'YYYYMM', interval '1 month')) AS kind (parent, unit, format, length)
        CROSS JOIN LATERAL (SELECT date_trunc(unit, instant AT TIME ZONE 'UTC') AS begin_at) AS begins
    LOOP
        IF to_regclass(part.name) IS NULL THEN
            EXECUTE format('CREATE TABLE %I (LIKE %I)', part.name, part.parent);
            EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', part.parent, part.name,
                           part.begin_at, part.end_at);
        END IF;
    END LOOP;
END
$$;
