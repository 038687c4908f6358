#!/usr/bin/env python3
"""Print the mean, the maximum and the last value of each series of an exported job, with pandas.

    polymeter export 4242 --store sqlite:run.db --output job.parquet
    export_pandas.py job.parquet
"""

import sys

import pandas

samples = pandas.read_parquet(sys.argv[1])
series = samples.groupby(["node", "metric", "labels", "unit"], observed=True)["value"]
print(series.agg(["size", "mean", "max", "last"]).to_string())

# Counters grow: a rate is the increase between two samples, divided by the seconds between them.
usage = samples[(samples.metric.str.endswith("cpu.usage")) & (samples.unit == "nanoseconds") & (samples.labels == "{}")]
for (node, metric), counter in usage.groupby(["node", "metric"]):
    counter = counter.set_index("time").value.resample("100ms").last().dropna()
    cores = counter.diff() / counter.index.to_series().diff().dt.total_seconds() / 1e9
    print(f"{metric} on {node}: {cores.mean():.3f} cores on average, {cores.max():.3f} at most")
