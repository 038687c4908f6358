//! The CPUs of a job. Source: `Documentation/admin-guide/cgroup-v2.rst` and `cgroup-v1/cpusets.rst` of Linux,
//! proc_pid_stat(5), proc_pid_status(5).

use crate::catalogue::metric::Metric;
use crate::catalogue::origin::{Origin, TICK};
use crate::series::Unit::{Count, Nanoseconds};

const CPUSET: &str = "`cpuset.cpus.effective`, `cpuset.effective_cpus`, or affinities";
const THREADS: &str = "threads of the job in `/proc/PID/task`";

pub(crate) static METRICS: &[Metric] = &[
    Metric::gauge(
        "cpu.allowed",
        Count,
        &[Origin::source("job_cpus", "allowed", CPUSET)],
        "CPUs that the job may use.",
    ),
    Metric::gauge(
        "cpu.bound",
        Count,
        &[Origin::source("job_cpus", "bound", THREADS)],
        "Distinct CPUs on which the job's busy threads may run. A thread is busy if it used 1 % of a CPU since the previous reading.",
    ),
    Metric::gauge(
        "cpu.threads.busy",
        Count,
        &[Origin::source("job_cpus", "busy_threads", THREADS)],
        "Busy threads of the job.",
    ),
    Metric::counter(
        "cpu.estimated.per_cpu",
        Nanoseconds,
        &[Origin::lagging_source("job_cpus", "time", THREADS, TICK)],
        "CPU time by CPU, where that of each thread counts for the CPU on which it ran last: exact for bound threads. Threads that live shorter than a period are missing.",
    ),
];
