"""Compares the store with what OAR and the jobs themselves said."""

import json
import re
import sqlite3
import sys
from pathlib import Path

out = Path(sys.argv[1])
store = sqlite3.connect(out / "store.db")
store.row_factory = sqlite3.Row
ids = dict(line.split() for line in (out / "ids").read_text().splitlines())


def field(number, name):
    found = re.search(rf"^    {name} = ?(.*)$", (out / f"oarstat.{number}").read_text(), re.MULTILINE)
    return found and found[1]


def last(job, metric):
    values = "SELECT max(value) FROM samples JOIN series USING (series_id) WHERE job_key = ? AND metric = ?"
    value = store.execute(values, (job["job_key"], metric)).fetchone()[0]
    assert value is not None, f"{metric} of job {job['job_id']} was not sampled"
    return value


# The state, the exit status and the signal, of which one of several is a matter of time.
EXPECTED = {
    "completed": ("COMPLETED", (0,), (0,)),
    "failed": ("FAILED", (3,), (0,)),
    "first": ("COMPLETED", (0,), (0,)),
    "second": ("COMPLETED", (0,), (0,)),
    "limited": ("TIMEOUT", None, None),
    "deleted": ("CANCELLED", None, None),
    "requested": ("COMPLETED", (0,), (0,)),
}
for name, (state, codes, signals) in EXPECTED.items():
    number = ids[name]
    rows = store.execute("SELECT * FROM job WHERE job_id = ?", (number,)).fetchall()
    assert len(rows) == 1, f"job {number} has {len(rows)} rows"
    job = rows[0]
    display_id = {"first": f"{ids['first']}_1", "second": f"{ids['first']}_2"}.get(name)
    seconds = [int(part) for part in field(number, "walltime").split(":")]
    expected = {
        "cluster": "grid",
        "owner": field(number, "owner"),
        "state": state,
        "name": field(number, "name") or None,
        "display_id": display_id,
        "time_limit_s": 3600 * seconds[0] + 60 * seconds[1] + seconds[2],
    }
    found = {column: job[column] for column in expected}
    assert found == expected, f"job {number}, {name}: {found}, not {expected}"
    assert found["owner"] == "alice"
    assert job["ended"], f"job {number}, {name}, has no end"
    assert codes is None or (job["exit_code"] in codes and job["exit_signal"] in signals), dict(job)
    assert json.loads((out / f"report.{number}").read_text())["state"] == state
    print(f"job {display_id or number}, {name}: {state}, exit status {job['exit_code']}, signal {job['exit_signal']}")
    if name not in ("completed", "failed", "first", "second"):
        continue
    # From before its script began to after it had recorded its values. cpu.user is due once a day: only the first and the last
    # sample exist, and those at the end of a part of the job.
    assert job["started"] <= int((out / f"began.{number}").read_text()), f"job {number} was found late"
    recorded = int((out / f"usage.{number}").read_text())
    stored = last(job, "cpu.usage")
    peak = int((out / f"peak.{number}").read_text())
    print(f"    {stored / 1e9:.3f} s CPU time stored, {recorded / 1e9:.3f} s recorded by the job; peak {last(job, 'memory.peak'):.0f} B, {peak} B")
    assert recorded <= stored, name
    assert 40 << 20 <= peak <= last(job, "memory.peak"), name
    assert last(job, "cpu.user") > 0

job_key = store.execute("SELECT job_key FROM job WHERE job_id = ?", (ids["requested"],)).fetchone()[0]
changes = "SELECT new_period_us FROM plan_change WHERE job_key = ? AND metric = 'cpu.user' AND cause = 'lease'"
assert [row[0] for row in store.execute(changes, (job_key,))] == [100_000], "the request at submission was not granted"

# Without cgroups there is nothing to sample: the job is recorded alone. The scripts must not disturb these jobs.
for name in ("cosystem", "deploy"):
    assert (out / name).exists() and field(ids[name], "state") == "Terminated", name
    assert field(ids[name], "exit_code").startswith("0 "), name
    jobs = store.execute("SELECT job_key, owner, state, ended FROM job WHERE job_id = ?", (ids[name],)).fetchall()
    assert [(job["owner"], job["state"]) for job in jobs] == [("alice", "COMPLETED")] and jobs[0]["ended"], name
    samples = "SELECT count(*) FROM samples JOIN series USING (series_id) WHERE job_key = ?"
    assert store.execute(samples, (jobs[0]["job_key"],)).fetchone()[0] == 0, name
assert "alice" not in (out / "refused").read_text()
