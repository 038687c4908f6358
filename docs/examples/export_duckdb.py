#!/usr/bin/env python3
"""Print the mean and the maximum of each series of an exported job, with DuckDB.

    polymeter export 4242 --store sqlite:run.db --output job.parquet
    export_duckdb.py job.parquet
"""

import sys

import duckdb

summary = duckdb.execute(
    """SELECT node, metric, labels, unit, count(*) AS samples, avg(value) AS mean, max(value) AS max
       FROM read_parquet(?) GROUP BY ALL ORDER BY node, metric, labels""", [sys.argv[1]])
for row in summary.fetchall():
    print(*row)
