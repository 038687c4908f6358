//! Efficiency of ended jobs, of each or summed by user, account, queue or array.

use std::ops::Range;

use polymeter_store::reader::{JobFilter, UsageGroup, UsageRow};
use serde_json::json;

use super::parameters::{FROM_US, UNTIL_US, now_ns, time_ns};
use crate::answer::{Column, Table, Type, number};
use crate::limits;
use crate::request::{Arguments, Endpoint, Kind, OBJECT, Parameter, TABLE};

const HOUR_NS: i64 = 3_600_000_000_000;

/// Default.
const DAYS: i64 = 7;

/// Default, and largest.
const HOURS: i64 = 24;
const HOURS_MAX: i64 = 24 * 366;

const GROUP: Column<UsageRow> = Column::optional(
    "group",
    Type::Text,
    "The user, account, queue, array or job; none for the jobs without one.",
    |of| json!(of.group),
);

const USER: Column<UsageRow> =
    Column::optional("user", Type::Text, "The owner of an array or job.", |of| json!(of.user));

const JOBS: Column<UsageRow> =
    Column::new("jobs", Type::Integer, "The number of jobs that ended.", |of| json!(of.jobs));

const FAILED: Column<UsageRow> =
    Column::new("failed", Type::Integer, "Those that failed or ran out of memory.", |of| json!(of.failed));

const UNKNOWN: Column<UsageRow> = Column::new(
    "unknown",
    Type::Integer,
    "Those whose cores or CPU time are not known; they count in no core-hours.",
    |of| json!(of.unknown),
);

const CORE_HOURS: Column<UsageRow> =
    Column::new("core_hours", Type::Number, "The cores multiplied by the elapsed time.", |of| {
        number(of.core_s / 3600.0)
    });

const CPU_HOURS: Column<UsageRow> = Column::new(
    "cpu_hours",
    Type::Number,
    "CPU time, of a core with several busy hardware threads once.",
    |of| number(of.cpu_s / 3600.0),
);

const WASTED_CORE_HOURS: Column<UsageRow> = Column::new(
    "wasted_core_hours",
    Type::Number,
    "The core-hours of jobs without GPUs less their CPU time.",
    |of| number(of.wasted_core_s / 3600.0),
);

const GPU_HOURS: Column<UsageRow> = Column::new(
    "gpu_hours",
    Type::Number,
    "The GPUs multiplied by the elapsed time, of jobs whose utilization of GPUs is known.",
    |of| number(of.gpu_s / 3600.0),
);

const WASTED_GPU_HOURS: Column<UsageRow> = Column::new(
    "wasted_gpu_hours",
    Type::Number,
    "The GPU-hours less those multiplied by the utilization.",
    |of| number(of.wasted_gpu_s / 3600.0),
);

const MEMORY_EFFICIENCY: Column<UsageRow> = Column::optional(
    "memory_efficiency",
    Type::Number,
    "The peak of used memory as a share of the requested, each weighted by the elapsed time.",
    |of| json!((of.memory_byte_s > 0.0).then(|| of.memory_used_byte_s / of.memory_byte_s)),
);

static SUMS: Table<UsageRow> = Table {
    name: "usage",
    columns: &[
        GROUP,
        USER,
        JOBS,
        FAILED,
        UNKNOWN,
        CORE_HOURS,
        CPU_HOURS,
        WASTED_CORE_HOURS,
        GPU_HOURS,
        WASTED_GPU_HOURS,
        MEMORY_EFFICIENCY,
    ],
};

const OF_USER: Parameter = Parameter::query("user", Kind::Text, "The name of the owner.");
const ACCOUNT: Parameter = Parameter::query("account", Kind::Text, "The account.");
const QUEUE: Parameter = Parameter::query("queue", Kind::Text, "The queue or partition.");

pub(super) static USAGE: Endpoint = Endpoint {
    path: "/api/v1/usage",
    id: "usage",
    summary: "The efficiency of the jobs that ended from `from_us` until `until_us`, by default in the last seven days, by user, account, queue, array or job; those that wasted most first.",
    parameters: &[
        Parameter::query(
            "by",
            Kind::Choice(&["user", "account", "queue", "array", "job"]),
            "The attribute by which jobs are added up; by default the user.",
        ),
        FROM_US,
        UNTIL_US,
        OF_USER,
        ACCOUNT,
        QUEUE,
        Parameter::query("limit", Kind::Integer(1, limits::USAGE_GROUPS), "The number of groups."),
    ],
    formats: TABLE,
    answer: || SUMS.schema(&[]),
    body: None,
    handler: |call| {
        let arguments = call.arguments.clone();
        Box::pin(call.stream(move |reader, _, chunks| {
            let rows = reader.usage(group(&arguments), ended_ns(&arguments), &filter(&arguments))?;
            SUMS.write(chunks, rows, &[])
        }))
    },
};

pub(super) static TOTAL: Endpoint = Endpoint {
    path: "/api/v1/usage/total",
    id: "usage_total",
    summary: "The efficiency of all jobs that the user may see and that ended in the last `hours`.",
    parameters: &[Parameter::query(
        "hours",
        Kind::Integer(1, HOURS_MAX),
        "The hours until now; by default 24.",
    )],
    formats: OBJECT,
    answer: || SUMS.row_schema(),
    body: None,
    handler: |call| {
        let hours = call.arguments.integer("hours").unwrap_or(HOURS);
        Box::pin(async move {
            call.object(move |reader, _| {
                let now_ns = now_ns();
                let ended_ns = now_ns.saturating_sub(hours.saturating_mul(HOUR_NS))..now_ns;
                let filter = JobFilter { limit: 1, ..JobFilter::default() };
                let sum = reader.usage(UsageGroup::All, ended_ns, &filter)?.pop().unwrap_or_default();
                Ok(SUMS.object(&sum))
            })
            .await
        })
    },
};

fn group(arguments: &Arguments) -> UsageGroup {
    match arguments.text("by") {
        Some("account") => UsageGroup::Account,
        Some("queue") => UsageGroup::Queue,
        Some("array") => UsageGroup::Array,
        Some("job") => UsageGroup::Job,
        Some(_) | None => UsageGroup::User,
    }
}

fn ended_ns(arguments: &Arguments) -> Range<i64> {
    let until_ns = time_ns(arguments, UNTIL_US.name).unwrap_or_else(now_ns);
    let from_ns = time_ns(arguments, FROM_US.name);
    from_ns.unwrap_or_else(|| until_ns.saturating_sub(DAYS * 24 * HOUR_NS))..until_ns
}

fn filter(arguments: &Arguments) -> JobFilter {
    let limit = arguments.integer("limit").unwrap_or(limits::USAGE_GROUPS);
    JobFilter {
        owner: arguments.owned(OF_USER.name),
        account: arguments.owned(ACCOUNT.name),
        queue: arguments.owned(QUEUE.name),
        limit: u32::try_from(limit).unwrap_or(1),
        ..JobFilter::default()
    }
}
