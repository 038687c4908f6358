#!/usr/bin/env python3
"""Print the mean and the maximum of each series of an exported job, with polars.

    polymeter export 4242 --store sqlite:run.db --output job.parquet
    export_polars.py job.parquet
"""

import sys

import polars

samples = polars.scan_parquet(sys.argv[1])
value = polars.col("value")
summary = samples.group_by("node", "metric", "labels", "unit").agg(
    value.len().alias("samples"), value.mean().alias("mean"), value.max().alias("max"))
with polars.Config(tbl_rows=-1):
    print(summary.sort("node", "metric", "labels").collect())
