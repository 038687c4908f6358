//! Usage and limits of memory, swap and kernel memory, and failed allocations.

use crate::catalogue::metric::Metric;
use crate::catalogue::text_file::{Form, TextFile, V1_UNLIMITED};
use crate::series::Unit::{Bytes, Count};

static V1_USAGE: TextFile = TextFile::v1("memory", "memory.usage_in_bytes", Form::Values);
static V1_PEAK: TextFile = TextFile::v1("memory", "memory.max_usage_in_bytes", Form::Values);
static V1_LIMIT: TextFile = TextFile::v1("memory", "memory.limit_in_bytes", Form::Values);
static V1_SOFT_LIMIT: TextFile = TextFile::v1("memory", "memory.soft_limit_in_bytes", Form::Values);
static V1_FAILURES: TextFile = TextFile::v1("memory", "memory.failcnt", Form::Values).local();
static V1_SWAP_USAGE: TextFile = TextFile::v1("memory", "memory.memsw.usage_in_bytes", Form::Values);
static V1_SWAP_PEAK: TextFile = TextFile::v1("memory", "memory.memsw.max_usage_in_bytes", Form::Values);
static V1_SWAP_LIMIT: TextFile = TextFile::v1("memory", "memory.memsw.limit_in_bytes", Form::Values);
static V1_SWAP_FAILURES: TextFile = TextFile::v1("memory", "memory.memsw.failcnt", Form::Values).local();
static V1_KERNEL_USAGE: TextFile = TextFile::v1("memory", "memory.kmem.usage_in_bytes", Form::Values);
static V1_TCP_USAGE: TextFile = TextFile::v1("memory", "memory.kmem.tcp.usage_in_bytes", Form::Values);
static V1_OOM: TextFile = TextFile::v1("memory", "memory.oom_control", Form::Keyed).local();
static V2_CURRENT: TextFile = TextFile::v2("memory.current", Form::Values);
static V2_PEAK: TextFile = TextFile::v2("memory.peak", Form::Values);
static V2_MAX: TextFile = TextFile::v2("memory.max", Form::Values);
static V2_HIGH: TextFile = TextFile::v2("memory.high", Form::Values);
static V2_LOW: TextFile = TextFile::v2("memory.low", Form::Values);
static V2_MIN: TextFile = TextFile::v2("memory.min", Form::Values);
static V2_EVENTS: TextFile = TextFile::v2("memory.events", Form::Keyed);
static V2_SWAP_CURRENT: TextFile = TextFile::v2("memory.swap.current", Form::Values);
static V2_SWAP_PEAK: TextFile = TextFile::v2("memory.swap.peak", Form::Values);
static V2_SWAP_MAX: TextFile = TextFile::v2("memory.swap.max", Form::Values);
static V2_SWAP_EVENTS: TextFile = TextFile::v2("memory.swap.events", Form::Keyed);
static V2_ZSWAP_CURRENT: TextFile = TextFile::v2("memory.zswap.current", Form::Values);

/// Usage, limits, and failed allocations.
pub(crate) static METRICS: &[Metric] = &[
    Metric::gauge(
        "memory.current",
        Bytes,
        &[V2_CURRENT.only(), V1_USAGE.only()],
        "Memory in use, cache and kernel memory included.",
    ),
    Metric::gauge("memory.peak", Bytes, &[V2_PEAK.only(), V1_PEAK.only()], "The peak of memory in use."),
    Metric::gauge(
        "memory.limit",
        Bytes,
        &[V2_MAX.limit(u64::MAX), V1_LIMIT.limit(V1_UNLIMITED)],
        "The hard limit; absent where there is none.",
    ),
    Metric::gauge(
        "memory.limit.soft",
        Bytes,
        &[V1_SOFT_LIMIT.limit(V1_UNLIMITED)],
        "The soft limit of version 1; absent where there is none.",
    ),
    Metric::gauge(
        "memory.limit.high",
        Bytes,
        &[V2_HIGH.limit(u64::MAX)],
        "The limit above which the job is throttled; absent where there is none.",
    ),
    Metric::gauge(
        "memory.protection.low",
        Bytes,
        &[V2_LOW.limit(u64::MAX)],
        "Memory that is reclaimed only if no other memory can be.",
    ),
    Metric::gauge(
        "memory.protection.min",
        Bytes,
        &[V2_MIN.limit(u64::MAX)],
        "Memory that is never reclaimed.",
    ),
    Metric::counter(
        "memory.events.max",
        Count,
        &[V2_EVENTS.key("max"), V1_FAILURES.only()],
        "Times that the hard limit was reached.",
    ),
    Metric::counter(
        "memory.events.low",
        Count,
        &[V2_EVENTS.key("low")],
        "Times that memory below the low limit was reclaimed.",
    ),
    Metric::counter(
        "memory.events.high",
        Count,
        &[V2_EVENTS.key("high")],
        "Times that the job was throttled at its high limit.",
    ),
    Metric::counter(
        "memory.events.oom",
        Count,
        &[V2_EVENTS.key("oom")],
        "Times that an allocation was about to fail at the hard limit.",
    ),
    Metric::counter(
        "memory.events.oom_kill",
        Count,
        &[V2_EVENTS.key("oom_kill"), V1_OOM.key("oom_kill")],
        "Processes killed by the OOM killer.",
    ),
    Metric::counter(
        "memory.events.oom_group_kill",
        Count,
        &[V2_EVENTS.key("oom_group_kill")],
        "Times that the OOM killer killed all processes of the cgroup together.",
    ),
    Metric::gauge(
        "memory.under_oom",
        Count,
        &[V1_OOM.key("under_oom")],
        "1 while processes wait for memory at the hard limit of version 1.",
    ),
    Metric::gauge("memory.swap.current", Bytes, &[V2_SWAP_CURRENT.only()], "Swap in use."),
    Metric::gauge("memory.swap.peak", Bytes, &[V2_SWAP_PEAK.only()], "The peak of swap in use."),
    Metric::gauge(
        "memory.swap.limit",
        Bytes,
        &[V2_SWAP_MAX.limit(u64::MAX)],
        "The hard limit of swap; absent where there is none.",
    ),
    Metric::counter(
        "memory.swap.events.high",
        Count,
        &[V2_SWAP_EVENTS.key("high")],
        "Times that swap was above its high limit.",
    ),
    Metric::counter(
        "memory.swap.events.max",
        Count,
        &[V2_SWAP_EVENTS.key("max")],
        "Times that the limit of swap was reached.",
    ),
    Metric::counter(
        "memory.swap.shortages",
        Count,
        &[V2_SWAP_EVENTS.key("fail")],
        "Swap allocations that failed, at the limit or because no swap was left.",
    ),
    Metric::gauge(
        "memory.memsw.current",
        Bytes,
        &[V1_SWAP_USAGE.only()],
        "Memory and swap in use together, which version 1 counts as one.",
    ),
    Metric::gauge(
        "memory.memsw.peak",
        Bytes,
        &[V1_SWAP_PEAK.only()],
        "The peak of memory and swap in use together.",
    ),
    Metric::gauge(
        "memory.memsw.limit",
        Bytes,
        &[V1_SWAP_LIMIT.limit(V1_UNLIMITED)],
        "The hard limit of memory and swap together; absent where there is none.",
    ),
    Metric::counter(
        "memory.memsw.events.max",
        Count,
        &[V1_SWAP_FAILURES.only()],
        "Times that the limit of memory and swap together was reached.",
    ),
    Metric::gauge(
        "memory.zswap.current",
        Bytes,
        &[V2_ZSWAP_CURRENT.only()],
        "Memory used by compressed swap.",
    ),
    Metric::gauge(
        "memory.kernel.current",
        Bytes,
        &[V1_KERNEL_USAGE.only()],
        "Kernel memory of this job, as version 1 counts it.",
    ),
    Metric::gauge(
        "memory.tcp.current",
        Bytes,
        &[V1_TCP_USAGE.only()],
        "Memory of TCP buffers, as version 1 counts it.",
    ),
];
