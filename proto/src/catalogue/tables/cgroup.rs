//! CPU, I/O, processes and huge pages of a job. Source: `Documentation/admin-guide/cgroup-v2.rst` and
//! `cgroup-v1/` of Linux, `kernel/sched/cpuacct.c`, `kernel/cgroup/rstat.c`, `block/blk-throttle.c`.

use crate::catalogue::metric::Metric;
use crate::catalogue::origin::{Origin, TICK};
use crate::catalogue::text_file::{Cell, EACH_CPU, EACH_DEVICE, Field, Form, Row, Scale, TextFile};
use crate::period::Period;
use crate::series::Unit::{Bytes, Count, Nanoseconds};

static V2_CPU: TextFile = TextFile::v2("cpu.stat", Form::Keyed).updated_every(TICK);
static V2_CPU_LOCAL: TextFile = TextFile::v2("cpu.stat.local", Form::Keyed);
static V1_CPU: TextFile = TextFile::v1("cpu", "cpu.stat", Form::Keyed);
static V1_CPU_LOCAL: TextFile = TextFile::v1("cpu", "cpu.stat.local", Form::Keyed);
static V1_USAGE: TextFile = TextFile::v1("cpuacct", "cpuacct.usage", Form::Values).updated_every(TICK);
/// User and system time in ticks of `USER_HZ`, divided in proportion as `cpuacct.usage` is.
/// `cpuacct.usage_user` and `_sys` have a finer unit, but account each whole scheduler tick to the task that
/// it interrupts: their sum was measured to be 16 % above `cpuacct.usage`.
static V1_TIMES: TextFile = TextFile::v1("cpuacct", "cpuacct.stat", Form::Keyed);
static V1_PER_CPU: TextFile =
    TextFile::v1("cpuacct", "cpuacct.usage_percpu", Form::Values).updated_every(TICK);
static V1_ALL: TextFile = TextFile::v1("cpuacct", "cpuacct.usage_all", Form::Keyed).updated_every(TICK);

const US: u64 = 1_000;

/// The usual period of the CPU limit (`cpu.cfs_period_us`). At its end the kernel unthrottles the group and
/// counts the throttled time.
const LIMIT_PERIOD: Period = Period::HUNDRED_MILLISECONDS;

/// CPU time and its throttling.
pub(crate) static CPU: &[Metric] = &[
    Metric::counter(
        "cpu.usage",
        Nanoseconds,
        &[V2_CPU.scaled("usage_usec", US), V1_USAGE.only()],
        "CPU time, user and system.",
    ),
    Metric::counter(
        "cpu.user",
        Nanoseconds,
        &[V2_CPU.scaled("user_usec", US), V1_TIMES.ticks(Row::Key("user"), 1)],
        "CPU time in user mode.",
    ),
    Metric::counter(
        "cpu.system",
        Nanoseconds,
        &[V2_CPU.scaled("system_usec", US), V1_TIMES.ticks(Row::Key("system"), 1)],
        "CPU time in the kernel.",
    ),
    Metric::counter(
        "cpu.nice",
        Nanoseconds,
        &[V2_CPU.scaled("nice_usec", US)],
        "CPU time in user mode at a lowered priority.",
    ),
    Metric::counter(
        "cpu.force_idle",
        Nanoseconds,
        &[V2_CPU.scaled("core_sched.force_idle_usec", US)],
        "Time that sibling threads were kept idle by core scheduling.",
    ),
    Metric::counter(
        "cpu.usage.per_cpu",
        Nanoseconds,
        &[Origin::Text {
            file: &V1_PER_CPU,
            field: Field { row: Row::Only, cell: Cell::Each("cpu"), scale: Scale::Times(1) },
        }],
        "CPU time on each CPU.",
    ),
    Metric::counter(
        "cpu.user.per_cpu",
        Nanoseconds,
        &[V1_ALL.word(EACH_CPU, 1)],
        "CPU time in user mode on each CPU, by samples at ticks: with that in the kernel it may be more than the CPU time.",
    ),
    Metric::counter(
        "cpu.system.per_cpu",
        Nanoseconds,
        &[V1_ALL.word(EACH_CPU, 2)],
        "CPU time in the kernel on each CPU.",
    ),
    Metric::counter(
        "cpu.periods",
        Count,
        &[V2_CPU.key("nr_periods"), V1_CPU.key("nr_periods")],
        "Enforcement periods of the CPU limit that have passed.",
    )
    .updated_every(LIMIT_PERIOD),
    Metric::counter(
        "cpu.throttled.periods",
        Count,
        &[V2_CPU.key("nr_throttled"), V1_CPU.key("nr_throttled")],
        "Enforcement periods in which the job was throttled.",
    )
    .updated_every(LIMIT_PERIOD),
    Metric::counter(
        "cpu.throttled.time",
        Nanoseconds,
        &[V2_CPU.scaled("throttled_usec", US), V1_CPU.key("throttled_time")],
        "Time that the job was throttled by its CPU limit, summed over CPUs.",
    )
    .updated_every(LIMIT_PERIOD),
    Metric::counter(
        "cpu.bursts",
        Count,
        &[V2_CPU.key("nr_bursts"), V1_CPU.key("nr_bursts")],
        "Enforcement periods in which the job used burst CPU time.",
    )
    .updated_every(LIMIT_PERIOD),
    Metric::counter(
        "cpu.burst.time",
        Nanoseconds,
        &[V2_CPU.scaled("burst_usec", US), V1_CPU.key("burst_time")],
        "Burst CPU time used above the limit.",
    )
    .updated_every(LIMIT_PERIOD),
    Metric::counter(
        "cpu.local.throttled.time",
        Nanoseconds,
        &[V2_CPU_LOCAL.scaled("throttled_usec", US), V1_CPU_LOCAL.key("throttled_time")],
        "Time that the job was throttled by any CPU limit, including those of its ancestors.",
    )
    .updated_every(LIMIT_PERIOD),
];

static V2_IO: TextFile = TextFile::v2("io.stat", Form::Pairs);
static V1_IO_BYTES: TextFile =
    TextFile::v1("blkio", "blkio.throttle.io_service_bytes_recursive", Form::Operations);
static V1_IO_COUNT: TextFile =
    TextFile::v1("blkio", "blkio.throttle.io_serviced_recursive", Form::Operations);
static V1_BFQ_BYTES: TextFile =
    TextFile::v1("blkio", "blkio.bfq.io_service_bytes_recursive", Form::Operations);
static V1_BFQ_COUNT: TextFile = TextFile::v1("blkio", "blkio.bfq.io_serviced_recursive", Form::Operations);
static V2_PIDS: TextFile = TextFile::v2("pids.current", Form::Values);
static V2_PIDS_PEAK: TextFile = TextFile::v2("pids.peak", Form::Values);
static V2_PIDS_MAX: TextFile = TextFile::v2("pids.max", Form::Values);
static V2_PIDS_EVENTS: TextFile = TextFile::v2("pids.events", Form::Keyed);
static V1_PIDS: TextFile = TextFile::v1("pids", "pids.current", Form::Values);
static V1_PIDS_PEAK: TextFile = TextFile::v1("pids", "pids.peak", Form::Values);
static V1_PIDS_MAX: TextFile = TextFile::v1("pids", "pids.max", Form::Values);
static V1_PIDS_EVENTS: TextFile = TextFile::v1("pids", "pids.events", Form::Keyed).local();
static V2_HUGE: TextFile = TextFile::v2("hugetlb.*.current", Form::Values).labelled(&["size"]);
static V2_HUGE_MAX: TextFile = TextFile::v2("hugetlb.*.max", Form::Values).labelled(&["size"]);
static V2_HUGE_EVENTS: TextFile = TextFile::v2("hugetlb.*.events", Form::Keyed).labelled(&["size"]);
static V1_HUGE: TextFile =
    TextFile::v1("hugetlb", "hugetlb.*.usage_in_bytes", Form::Values).labelled(&["size"]);
static V1_HUGE_PEAK: TextFile =
    TextFile::v1("hugetlb", "hugetlb.*.max_usage_in_bytes", Form::Values).labelled(&["size"]);
static V1_HUGE_MAX: TextFile =
    TextFile::v1("hugetlb", "hugetlb.*.limit_in_bytes", Form::Values).labelled(&["size"]);
static V1_HUGE_FAILURES: TextFile =
    TextFile::v1("hugetlb", "hugetlb.*.failcnt", Form::Values).labelled(&["size"]);

/// The smallest value that version 1 writes for huge pages without a limit. It is rounded down to whole
/// pages: this is the value for the largest size, 16 GiB.
const V1_HUGE_UNLIMITED: u64 = 0x7fff_fffc_0000_0000;

/// Creates the fallback origin where no file of the job's cgroups counts the quantity: the sum over its
/// processes.
const fn else_of_processes(field: &'static str) -> Origin {
    Origin::source("cgroup_processes", field, "else sum over `/proc/PID/io`")
}

const INTEGER: Scale = Scale::Times(1);

/// I/O by device, processes, huge pages.
pub(crate) static OTHER: &[Metric] = &[
    Metric::counter(
        "io.read.bytes",
        Bytes,
        &[
            V2_IO.named(EACH_DEVICE, "rbytes", INTEGER),
            V1_BFQ_BYTES.named(EACH_DEVICE, "Read", INTEGER),
            V1_IO_BYTES.named(EACH_DEVICE, "Read", INTEGER),
            else_of_processes("read_bytes"),
        ],
        "Bytes read from each device, or from storage by the job's processes.",
    ),
    Metric::counter(
        "io.write.bytes",
        Bytes,
        &[
            V2_IO.named(EACH_DEVICE, "wbytes", INTEGER),
            V1_BFQ_BYTES.named(EACH_DEVICE, "Write", INTEGER),
            V1_IO_BYTES.named(EACH_DEVICE, "Write", INTEGER),
            else_of_processes("write_bytes"),
        ],
        "Bytes written to each device, or to storage by the job's processes.",
    ),
    Metric::counter(
        "io.read.operations",
        Count,
        &[
            V2_IO.named(EACH_DEVICE, "rios", INTEGER),
            V1_BFQ_COUNT.named(EACH_DEVICE, "Read", INTEGER),
            V1_IO_COUNT.named(EACH_DEVICE, "Read", INTEGER),
        ],
        "Reads from each device.",
    ),
    Metric::counter(
        "io.write.operations",
        Count,
        &[
            V2_IO.named(EACH_DEVICE, "wios", INTEGER),
            V1_BFQ_COUNT.named(EACH_DEVICE, "Write", INTEGER),
            V1_IO_COUNT.named(EACH_DEVICE, "Write", INTEGER),
        ],
        "Writes to each device.",
    ),
    Metric::counter(
        "io.discard.bytes",
        Bytes,
        &[
            V2_IO.named(EACH_DEVICE, "dbytes", INTEGER),
            V1_BFQ_BYTES.named(EACH_DEVICE, "Discard", INTEGER),
            V1_IO_BYTES.named(EACH_DEVICE, "Discard", INTEGER),
        ],
        "Bytes discarded on each device.",
    ),
    Metric::counter(
        "io.discard.operations",
        Count,
        &[
            V2_IO.named(EACH_DEVICE, "dios", INTEGER),
            V1_BFQ_COUNT.named(EACH_DEVICE, "Discard", INTEGER),
            V1_IO_COUNT.named(EACH_DEVICE, "Discard", INTEGER),
        ],
        "Discards on each device.",
    ),
    Metric::gauge("pids.current", Count, &[V2_PIDS.only(), V1_PIDS.only()], "Processes and threads."),
    Metric::gauge(
        "pids.peak",
        Count,
        &[V2_PIDS_PEAK.only(), V1_PIDS_PEAK.only()],
        "The peak number of processes and threads.",
    ),
    Metric::gauge(
        "pids.limit",
        Count,
        &[V2_PIDS_MAX.limit(u64::MAX), V1_PIDS_MAX.limit(u64::MAX)],
        "The limit of processes and threads; absent where there is none.",
    ),
    Metric::counter(
        "pids.events.max",
        Count,
        &[V2_PIDS_EVENTS.key("max"), V1_PIDS_EVENTS.key("max")],
        "Forks that failed at the limit of processes and threads.",
    ),
    Metric::gauge(
        "hugetlb.current",
        Bytes,
        &[V2_HUGE.only(), V1_HUGE.only()],
        "Huge pages in use, by their size.",
    ),
    Metric::gauge(
        "hugetlb.peak",
        Bytes,
        &[V1_HUGE_PEAK.only()],
        "The peak of huge pages in use, by their size.",
    ),
    Metric::gauge(
        "hugetlb.limit",
        Bytes,
        &[V2_HUGE_MAX.limit(u64::MAX), V1_HUGE_MAX.limit(V1_HUGE_UNLIMITED)],
        "The limit of huge pages, by their size; absent where there is none.",
    ),
    Metric::counter(
        "hugetlb.events.max",
        Count,
        &[V2_HUGE_EVENTS.key("max"), V1_HUGE_FAILURES.only()],
        "Allocations that failed at the limit of huge pages, by their size.",
    ),
];
