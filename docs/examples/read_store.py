#!/usr/bin/env python3
"""Read samples of a job from a Polymeter store.

    read_store.py STORE                              list the jobs
    read_store.py STORE JOB                          list the series of a job
    read_store.py STORE JOB METRIC [--rate]          print time and value as CSV

STORE is the path of an SQLite file or a postgres:// URL. SQLite needs the standard library only, PostgreSQL psycopg 3.

A counter, such as cpu.usage in nanoseconds, only grows; --rate prints its growth per second instead. The kernel updates most counters
every few milliseconds, so a rate is computed over a window of at least --window seconds (0.1), not from each pair of samples.
"""

import argparse
import csv
import json
import sqlite3
import sys


class Store:
    """A store, with times in seconds since the epoch."""

    def __init__(self, url):
        self.is_postgres = url.startswith(("postgres://", "postgresql://"))
        if self.is_postgres:
            import psycopg

            self.connection = psycopg.connect(url)
        else:
            path = url.removeprefix("sqlite:")
            # Read-only: a reader never changes a store, and never creates one.
            self.connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)

    def time(self, column):
        """An SQL expression for a time column in seconds."""
        return f"extract(epoch from {column})" if self.is_postgres else f"{column} / 1e9"

    def rows(self, sql, *parameters):
        if self.is_postgres:
            sql = sql.replace("?", "%s")
        cursor = self.connection.cursor()
        cursor.execute(sql, parameters)
        return cursor.fetchall()

    def jobs(self):
        """Id, owner, start and end of each job, the last first."""
        return self.rows(
            f"SELECT job_id, coalesce(owner, ''), {self.time('started')}, {self.time('ended')} FROM job ORDER BY started DESC"
        )

    def series(self, job):
        """Key, node, metric, labels, unit and kind of each series of the last run of a job."""
        found = self.rows(
            """SELECT series_id, node, metric, labels, unit, kind FROM series JOIN metric USING (metric)
               WHERE job_key = (SELECT max(job_key) FROM job WHERE job_id = ?) ORDER BY metric, node""",
            job,
        )
        return [(*row[:3], as_labels(row[3]), *row[4:]) for row in found]

    def samples(self, series_id):
        """Times and values of a series."""
        return self.rows(
            f"SELECT {self.time('time')}, value FROM samples WHERE series_id = ? ORDER BY time", series_id
        )

    def balance(self, job):
        """The outcome of all samples of a job: due, stored, and the counts of those that are not stored."""
        names = ["due", "stored", "missed", "absent", "dropped", "skipped", "rejected", "quarantined", "unknown"]
        sums = ", ".join(f"coalesce(sum({name}), 0)" for name in names)
        row = self.rows(
            f"SELECT {sums} FROM ledger_balance WHERE job_key = (SELECT max(job_key) FROM job WHERE job_id = ?)", job
        )[0]
        return {name: int(value) for name, value in zip(names, row)}


def as_labels(labels):
    """SQLite stores JSON as text."""
    return json.loads(labels) if isinstance(labels, str) else labels


def rates(samples, window_s=0.1):
    """The growth per second of a counter, over windows of at least `window_s`."""
    result = []
    begin = None
    for time, value in samples:
        if begin is None:
            begin = (time, value)
        elif time - begin[0] >= window_s:
            result.append((time, (value - begin[1]) / (time - begin[0])))
            begin = (time, value)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store")
    parser.add_argument("job", nargs="?")
    parser.add_argument("metric", nargs="?")
    parser.add_argument("--rate", action="store_true", help="the growth of a counter per second")
    parser.add_argument("--window", type=float, default=0.1, metavar="SECONDS", help="the shortest window of a rate")
    arguments = parser.parse_args()
    store = Store(arguments.store)
    out = csv.writer(sys.stdout, lineterminator="\n")
    if arguments.job is None:
        out.writerow(["job", "owner", "started", "ended"])
        out.writerows(store.jobs())
        return
    series = store.series(arguments.job)
    if not series:
        sys.exit(f"no series of job {arguments.job} in this store")
    if arguments.metric is None:
        out.writerow(["node", "metric", "labels", "unit", "kind"])
        out.writerows([node, metric, json.dumps(labels), unit, kind] for _, node, metric, labels, unit, kind in series)
        return
    out.writerow(["time", "node", "labels", "value"])
    for series_id, node, metric, labels, _unit, kind in series:
        if metric != arguments.metric:
            continue
        samples = store.samples(series_id)
        if arguments.rate:
            if kind != "counter":
                sys.exit(f"{metric} is a {kind}: only a counter has a rate")
            samples = rates(samples, arguments.window)
        out.writerows([f"{time:.6f}", node, json.dumps(labels), value] for time, value in samples)


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        sys.exit(0)
