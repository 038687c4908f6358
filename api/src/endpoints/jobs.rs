//! List of jobs.

use polymeter_store::reader::{JobFilter, JobOrder};
use serde_json::{Value, json};

use super::job::FACTS;
use super::parameters::{FROM_US, NODE, UNTIL_US, time_ns};
use super::waste;
use crate::answer::Problem;
use crate::limits;
use crate::request::{Arguments, Endpoint, Kind, Parameter, TABLE};

/// Order by the core-hours that were not used.
const WASTE: &str = "waste";

const CURSOR: &str = r"^[0-9]{1,18}\.[0-9]{1,18}$";

pub(super) static JOBS: Endpoint = Endpoint {
    path: "/api/v1/jobs",
    id: "jobs",
    summary: "The jobs of the user, or of all users for administrators; without `sort` the one that started last first.",
    parameters: &[
        Parameter::query(
            "id",
            Kind::Text,
            "The scheduler's id, also as it prints it (4009_1), or that of an array for all of its tasks.",
        ),
        Parameter::query("user", Kind::Text, "The name of the owner."),
        Parameter::query("uid", Kind::Integer(0, u32::MAX as i64), "The numeric id of the owner."),
        Parameter::query("name", Kind::Text, "A part of the name, in any case."),
        Parameter::query("cluster", Kind::Text, "The cluster."),
        Parameter::query("account", Kind::Text, "The account."),
        Parameter::query("queue", Kind::Text, "The queue or partition."),
        Parameter::query(
            "state",
            Kind::Text,
            "A final state, several ones with commas, or `running` or `ended`, in any case.",
        ),
        NODE,
        FROM_US,
        UNTIL_US,
        Parameter::query(
            "sort",
            Kind::Choice(&["started", "ended", "elapsed", "cores", WASTE]),
            "The value by which jobs are listed, the largest first. `ended` and `elapsed` list jobs with an end, unless `state` is `running`; \
             `waste` lists those of the last day that left most core-hours unused, on one page.",
        ),
        Parameter::query("order", Kind::Choice(&["descending", "ascending"]), "The direction of `sort`."),
        Parameter::query("limit", Kind::Integer(1, limits::PAGE_JOBS), "The number of jobs on a page."),
        Parameter::query("cursor", Kind::Formed(CURSOR), "The member `next` of the previous page."),
    ],
    formats: TABLE,
    answer: || {
        FACTS.schema(&[(
            "next",
            json!({"type": ["string", "null"], "description": "The cursor of the next page."}),
        )])
    },
    body: None,
    handler: |call| {
        Box::pin(async move {
            let filter = filter(&call.arguments)?;
            let by_waste = call.arguments.text("sort") == Some(WASTE);
            call.stream(move |reader, _, chunks| {
                if by_waste {
                    let jobs = waste::most_wasteful(reader, filter)?;
                    return FACTS.write(chunks, &jobs, &[("next", Value::Null)]);
                }
                let jobs = reader.jobs(&filter)?;
                let is_full = jobs.len() as u64 >= u64::from(filter.limit);
                let next =
                    jobs.last().filter(|_| is_full).map(|job| format!("{}.{}", job.listed, job.job_key));
                FACTS.write(chunks, &jobs, &[("next", json!(next))])
            })
            .await
        })
    },
};

fn parse_cursor(text: &str) -> Option<(i64, i64)> {
    let (started_ns, key) = text.split_once('.')?;
    let started_ns = started_ns.parse::<i64>().ok().filter(|started_ns| *started_ns >= 0)?;
    Some((started_ns, key.parse::<i64>().ok().filter(|key| *key >= 0)?))
}

fn filter(arguments: &Arguments) -> Result<JobFilter, Problem> {
    let state = arguments.owned("state");
    let is_ended = match state.as_deref() {
        Some(state) if state.eq_ignore_ascii_case("running") => Some(false),
        Some(state) if state.eq_ignore_ascii_case("ended") => Some(true),
        Some(_) | None => None,
    };
    let before = arguments.text("cursor").map(|text| {
        parse_cursor(text)
            .ok_or_else(|| Problem::invalid("cursor", "expected the member `next` of the previous page"))
    });
    Ok(JobFilter {
        named: arguments.owned("id"),
        owner: arguments.owned("user"),
        owner_uid: arguments.integer("uid"),
        name: arguments.owned("name"),
        cluster: arguments.owned("cluster"),
        account: arguments.owned("account"),
        queue: arguments.owned("queue"),
        state: state.filter(|_| is_ended.is_none()),
        is_ended,
        node: arguments.owned("node"),
        since_ns: time_ns(arguments, "from_us"),
        until_ns: time_ns(arguments, "until_us"),
        order: match arguments.text("sort") {
            Some("ended") => JobOrder::Ended,
            Some("elapsed") => JobOrder::Elapsed,
            Some("cores") => JobOrder::Cores,
            Some(_) | None => JobOrder::Started,
        },
        is_ascending: arguments.text("order") == Some("ascending"),
        before: before.transpose()?,
        limit: u32::try_from(arguments.integer("limit").unwrap_or(limits::PAGE_JOBS)).unwrap_or(1),
        ..JobFilter::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_begin_at_the_cursor() {
        let parse = |query: &str| filter(&Arguments::parse(JOBS.parameters, [], Some(query)).unwrap());
        assert_eq!(parse("cursor=5.2&limit=3").unwrap().before, Some((5, 2)));
        assert_eq!(parse("state=Running").unwrap().is_ended, Some(false));
        assert_eq!(parse("sort=elapsed&order=ascending").unwrap().order, JobOrder::Elapsed);
        assert_eq!(parse("state=TIMEOUT").unwrap().state.as_deref(), Some("TIMEOUT"));
        for wrong in ["5", "5.", ".2", "x.2", "5.2.1", "-5.2", "99999999999999999999.1"] {
            assert_eq!(parse(&format!("cursor={wrong}")).unwrap_err().status().as_u16(), 400, "{wrong}");
        }
    }
}
