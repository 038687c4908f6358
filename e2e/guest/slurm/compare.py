"""Compares the guest's store with what slurmctld, slurmd and the kernel said about the jobs."""

import json
import sqlite3
import sys
from pathlib import Path

out = Path(sys.argv[1])
store = sqlite3.connect(out / "store.db")
store.row_factory = sqlite3.Row


def read(name):
    return (out / name).read_text()


def last(job, metric, labels):
    """Returns the greatest value of a series: those compared never decrease."""
    values = """SELECT max(value) AS value, count(*) AS number FROM samples JOIN series USING (series_id)
        WHERE job_key = ? AND metric = ? AND labels = ?"""
    row = store.execute(values, (job["job_key"], metric, json.dumps(labels, separators=(",", ":")))).fetchone()
    assert row["number"] > 0, f"{metric} {labels} of job {job['job_id']} was not sampled"
    return row["value"]


def kibibytes(text):
    return float(text.rstrip("K")) * 1024


def controllers(number):
    """Returns slurmctld's record of a job."""
    return dict(word.split("=", 1) for word in read(f"job.{number}").split() if "=" in word)


def compare_details(number, expected_state):
    """Compares the rows of the job's runs in the table job with the controller's record, and returns them."""
    record = controllers(number)
    rows = store.execute("SELECT * FROM job WHERE job_id = ? ORDER BY started", (number,)).fetchall()
    assert len(rows) == int(record["Restarts"]) + 1, f"{len(rows)} runs: {record}"
    job, display_id = rows[-1], None
    if "ArrayTaskId" in record:
        display_id = f"{record['ArrayJobId']}_{record['ArrayTaskId']}"
    code, signal = map(int, record["ExitCode"].split(":"))
    assert record["JobState"] == expected_state, record
    expected = {
        "cluster": "lab",
        "owner": "alice",
        "owner_uid": 1000,
        "queue": record["Partition"],
        "nodes": record["NodeList"],
        "cores": int(record["NumCPUs"]),
        "state": expected_state,
        "exit_code": code,
        "exit_signal": signal,
        "name": record["JobName"],
        "display_id": display_id,
        "time_limit_s": 600,
        "memory_bytes": int(record["MinMemoryCPU" if "MinMemoryCPU" in record else "MinMemoryNode"].rstrip("M")) << 20,
        "restarts": int(record["Restarts"]),
    }
    found = {column: job[column] for column in expected}
    assert found == expected, f"job {number}: {found}, not {expected}"
    assert all(row["ended"] for row in rows), f"a run of job {number} has no end"
    print(f"job {display_id or number}: {found['name']}, {found['state']}, {found['restarts']} restarts")
    return rows


solve, hungry, requeued, *tasks = read("ids").split()
assert len(tasks) == 2, tasks
job = compare_details(solve, "COMPLETED")[-1]
over_limit = compare_details(hungry, "OUT_OF_MEMORY")[-1]
first_run = compare_details(requeued, "FAILED")[0]
assert first_run["restarts"] == 0
for task in tasks:
    compare_details(task, "COMPLETED")

# The job's script recorded the values of its cgroup at its end; then only its slurmstepd runs. cpu.user has a period of a day, so
# a value that is not smaller proves that the cgroups were read after the end of the script, although slurmd removes them.
cpu = dict(line.split() for line in read("solve.cpu.stat").splitlines())
peak = int(read("solve.memory.peak"))
before_removal = int(read(f"last/{solve}")) * 1000
for metric, recorded in (("cpu.user", int(cpu["user_usec"]) * 1000), ("cpu.usage", int(cpu["usage_usec"]) * 1000)):
    stored = last(job, metric, {})
    print(f"{metric}: {stored / 1e9:.3f} s stored, {recorded / 1e9:.3f} s recorded by the job")
    assert recorded <= stored, metric
usage = last(job, "cpu.usage", {})
print(f"cpu.usage: {before_removal / 1e9:.3f} s before slurmd removed the cgroup")
assert abs(usage - before_removal) <= 0.1 * before_removal
stored = last(job, "memory.peak", {})
print(f"memory.peak: {stored:.0f} B stored, {peak} B recorded by the job")
assert peak <= stored <= job["memory_bytes"]
assert stored >= 40 << 20
stored = last(over_limit, "memory.peak", {})
assert 20 << 20 <= stored <= 30 << 20, stored

# The steps, as slurmstepd's accounting saw them while they ran, in whole seconds.
steps = {}
for line in read("sstat").splitlines():
    name, number_of_tasks, max_rss, cpu_time = line.split("|")
    hours, minutes, seconds = map(int, cpu_time.split(":"))
    steps[name.split(".")[1]] = (int(number_of_tasks), kibibytes(max_rss), 3600 * hours + 60 * minutes + seconds)
assert set(steps) == {"0", "batch", "extern"} and steps["0"][0] == 2, steps
for step, (number_of_tasks, max_rss, cpu_s) in steps.items():
    stored = last(job, "cpu.usage", {"step": step}) / 1e9
    print(f"step {step}: {stored:.3f} s CPU time stored, sstat {number_of_tasks} x {cpu_s} s")
    assert stored >= number_of_tasks * cpu_s
of_tasks = [last(job, "cpu.usage", {"step": "0", "task": task}) for task in ("0", "1")]
assert min(of_tasks) > 1e8 and sum(of_tasks) <= last(job, "cpu.usage", {"step": "0"}), of_tasks

# The owner's report, through the collector, and the refusal to another user.
for number in (solve, hungry, requeued, *tasks):
    report = json.loads(read(f"report.{number}"))
    assert (report["owner"], report["job"]) == ("alice", number), (number, report["owner"], report["job"])
assert "alice" not in read("refused"), read("refused")
# The agent, which the prolog started, is in no cgroup of slurmd or of a job.
assert read("agent.cgroup").strip() == "0::/", read("agent.cgroup")
