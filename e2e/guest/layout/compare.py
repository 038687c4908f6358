"""Compares the last samples of the job in the guest's store with the values of its kernel at that time, and the ledger with itself."""

import sqlite3
import sys
from pathlib import Path

out = Path(sys.argv[1])
store = sqlite3.connect(out / "store.db")
job = store.execute("SELECT job_key, ended FROM job WHERE job_id = '7'").fetchone()
assert job and job[1], f"the job's end is not in the store: {job}"


def keyed(name):
    return dict(line.split() for line in (out / name).read_text().splitlines())


cpu, stat = keyed("cpu.stat"), keyed("memory.stat")
io = [dict(pair.split("=") for pair in line.split()[1:]) for line in (out / "io.stat").read_text().splitlines()]
kernel = {
    # Time counters continue while the job sleeps; the last sample and the file are at most a second apart.
    "cpu.usage": (int(cpu["usage_usec"]) * 1000, 0.05),
    "cpu.user": (int(cpu["user_usec"]) * 1000, 0.05),
    "memory.peak": (int((out / "memory.peak").read_text()), 0),
    "memory.limit": (300 << 20, 0),
    "memory.pgfault": (int(stat["pgfault"]), 0.05),
    "io.write.bytes": (sum(int(device["wbytes"]) for device in io), 0),
    "io.write.operations": (sum(int(device["wios"]) for device in io), 0),
    "pids.peak": (int((out / "pids.peak").read_text()) if (out / "pids.peak").exists() else None, 0),
}
# Counters never decrease, and the clock was set back: the last value is the greatest, not the one with the latest time.
last = """SELECT max(value) FROM samples JOIN series USING (series_id) WHERE job_key = ? AND metric = ? GROUP BY series_id"""
compared = 0
for metric, (expected, tolerance) in kernel.items():
    values = [row[0] for row in store.execute(last, (job[0], metric))]
    if expected is None:
        continue  # This kernel does not have it.
    assert values, f"{metric} was not sampled"
    found = sum(values)
    assert expected <= found <= expected * (1 + tolerance), f"{metric}: {found} stored, {expected} in the kernel"
    print(f"{metric:22} {found:15.0f} stored, {expected:15} in the kernel")
    compared += 1
assert compared >= 7

counts = store.execute("SELECT sum(due), sum(taken), sum(missed), sum(absent), sum(dropped) FROM ledger WHERE job_key = ?", (job[0],)).fetchone()
due, taken, missed, absent, dropped = counts
stored = store.execute("SELECT count(*) FROM samples JOIN series USING (series_id) WHERE job_key = ?", (job[0],)).fetchone()[0]
assert due == taken + missed + absent, counts
assert stored == taken - dropped, f"{stored} stored, {taken} taken, {dropped} dropped"
print(f"ledger: {due} due = {taken} taken + {missed} missed + {absent} absent; {stored} stored")
faults = store.execute("SELECT max(value) FROM samples JOIN series USING (series_id) WHERE job_key = ? AND metric = 'perf.page_faults'", (job[0],)).fetchone()[0]
pages = int(stat["pgfault"])
assert faults and 0.9 * pages <= faults <= 1.1 * pages, f"perf counted {faults} page faults, memory.stat {pages}"
# In the order in which they were stored, since the clock was set back.
changes = """SELECT cause, new_period_us FROM plan_change_event JOIN plan_change_set_member USING (set_id)
    WHERE job_key = ? AND metric = 'cpu.usage' ORDER BY plan_change_event.rowid"""
changes = store.execute(changes, (job[0],)).fetchall()
assert changes == [("baseline", 100_000), ("lease", 10_000), ("lease_end", 100_000)], changes
print("page faults by perf:", int(faults))

# The agent began anew after the clock was set, and ended its session before.
sessions = [row[0] for row in store.execute("SELECT end_reason FROM session ORDER BY session_key")]
assert sessions == ["stopped", "stopped"], sessions
print("sessions: one before and one after the clock was set")
