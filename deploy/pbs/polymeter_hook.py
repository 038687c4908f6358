"""OpenPBS hook: announces jobs to the agent of each of their nodes. See docs/how-to/other-schedulers.md.

It runs as root on every node of a job, and accepts its event whatever happens: a failure is logged, and the job runs.
"""

import os
import subprocess

import pbs

POLYMETER = os.environ.get("POLYMETER", "/usr/bin/polymeter")
CONFIG = os.environ.get("POLYMETER_AGENT_CONFIG", "/etc/polymeter/agent.toml")
SOCKET = os.environ.get("POLYMETER_SOCKET", "/run/polymeter/agent.sock")

# Seconds after which the announcement of a job is given up.
TIMEOUT = 10


def announce(verb, options):
    """Calls `polymeter job VERB` with the options that have a value."""
    command = [POLYMETER, "job", verb, "--socket", SOCKET]
    if verb == "start":
        command += ["--config", CONFIG, "--exit-when-idle"]
    for name, value in options:
        if value not in (None, ""):
            command += ["--" + name, str(value)]
    try:
        with open("/dev/null", "r+b") as null:
            subprocess.Popen(command, stdin=null, stdout=null, stderr=null).communicate(timeout=TIMEOUT)
    except Exception as error:
        pbs.logmsg(pbs.LOG_WARNING, "polymeter: %s: %s" % (" ".join(command), error))


event = pbs.event()
job = event.job
if event.type == pbs.EXECJOB_PROLOGUE:
    limit = job.Resource_List["walltime"]
    announce(
        "start",
        [
            ("job", job.id),
            ("user", job.euser),
            ("name", job.Job_Name),
            ("queue", getattr(job.queue, "name", job.queue)),
            ("account", job.Account_Name),
            ("time-limit", int(limit) if limit is not None else None),
        ],
    )
elif event.type == pbs.EXECJOB_EPILOGUE:
    # Above 256 the number of a signal, 128 of which PBS uses for a core dump.
    status = job.Exit_status
    ended = [("job", job.id)]
    if status is not None and status >= 256:
        ended.append(("exit-signal", (status - 256) % 128))
    elif status is not None and status >= 0:
        ended.append(("exit-code", status))
    announce("end", ended)
event.accept()
