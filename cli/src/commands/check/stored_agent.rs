//! The agent of any node, by what the store has of it.

use std::collections::HashMap;
use std::time::Duration;

use polymeter_proto::units;
use polymeter_service::clock;
use polymeter_store::StoreError;
use polymeter_store::reader::{AgentRow, Read, SeriesScope};

use super::agent_figures::{AgentFigures, Budgets};
use super::verdict::{State, Verdict};
use crate::client::read_source::ReadSource;
use crate::failure::Failure;
use crate::store_failure::cannot_read;

/// An agent that was silent for longer is not found.
const DAY: Duration = Duration::from_secs(86_400);

const AHEAD_NS: i64 = 60_000_000_000;

/// Metrics of agents that are judged. The catalogue describes them.
const CPU: &str = "agent.cpu.time";
const MEMORY: &str = "agent.memory.resident";
const DUE: &str = "agent.samples.due";
const LATE: &str = "agent.samples.late";
const OUTBOX: &str = "agent.outbox.bytes";
const SPOOL: &str = "agent.spool.bytes";

pub(super) fn check(
    source: &ReadSource,
    node: &str,
    interval: Duration,
    budgets: Budgets,
) -> Result<Verdict, Failure> {
    let mut source = match source.open() {
        Ok(source) => source,
        Err(failure @ Failure::Unreachable(_)) => {
            return Ok(Verdict::critical("collector".to_owned(), failure.to_string()));
        }
        Err(failure) => return Err(failure),
    };
    if source.hides_nodes() {
        return Err(Failure::Failed(
            "cannot check the agent of a node: the collector shows agents to administrators only; add this user to `administrators` in collector.toml"
                .to_owned(),
        ));
    }
    let reader = source.reader.as_mut();
    let now_ns = i64::try_from(clock::realtime_ns()).unwrap_or(i64::MAX);
    let subject = format!("agent of {node}");
    let Some(agent) = agent_of(reader, node, before(now_ns, DAY)).map_err(cannot_read)? else {
        return Ok(Verdict::critical(subject, "nothing was received from it for a day".to_owned()));
    };
    let mut problems = Vec::new();
    if agent.ended_ns.is_some() {
        let reason = agent.end_reason.as_deref().unwrap_or("unknown reason");
        problems.push((State::Critical, format!("it ended: {reason}")));
    }
    let figures = figures(reader, &agent, now_ns, interval).map_err(cannot_read)?;
    Ok(Verdict { subject, problems, figures: figures.judged(budgets) })
}

fn before(now_ns: i64, time: Duration) -> i64 {
    now_ns.saturating_sub(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX))
}

fn agent_of(reader: &mut dyn Read, node: &str, since_ns: i64) -> Result<Option<AgentRow>, StoreError> {
    Ok(reader.agents(since_ns)?.into_iter().find(|agent| agent.node == node))
}

fn figures(
    reader: &mut dyn Read,
    agent: &AgentRow,
    now_ns: i64,
    interval: Duration,
) -> Result<AgentFigures, StoreError> {
    let since_ns = before(now_ns, interval);
    // Its losses are those since the time of the query.
    let lost = agent_of(reader, &agent.node, since_ns)?.map(|agent| agent.lost);
    let newest_ns = agent.last_sample_ns.unwrap_or(agent.last_seen_ns);
    let age_ns = u64::try_from(now_ns.saturating_sub(newest_ns)).unwrap_or(0);
    let courses = courses(reader, &agent.node, since_ns, now_ns)?;
    let increase = |metric: &str| courses.get(metric).map(Course::increase);
    let last = |metric: &str| courses.get(metric).map(|course| units::whole(course.last));
    Ok(AgentFigures {
        interval_s: courses.get(CPU).map_or(0.0, Course::elapsed_s),
        newest_age_s: Some(Duration::from_nanos(age_ns).as_secs_f64()),
        lost: Some(lost.unwrap_or(0)),
        due: increase(DUE),
        late: increase(LATE),
        cpu_ns: increase(CPU),
        resident_bytes: last(MEMORY),
        backlog_bytes: last(OUTBOX).map(|bytes| bytes.saturating_add(last(SPOOL).unwrap_or(0))),
    })
}

/// Samples of a metric in the interval.
struct Course {
    first_ns: i64,
    last_ns: i64,
    last: f64,
    /// Sum of the steps upwards: counts begin anew with each agent.
    increase: f64,
}

impl Course {
    fn increase(&self) -> u64 {
        units::whole(self.increase)
    }

    fn elapsed_s(&self) -> f64 {
        Duration::from_nanos(u64::try_from(self.last_ns.saturating_sub(self.first_ns)).unwrap_or(0))
            .as_secs_f64()
    }

    fn add(&mut self, time_ns: i64, value: f64) {
        self.increase += (value - self.last).max(0.0);
        (self.last_ns, self.last) = (time_ns, value);
    }
}

fn courses(
    reader: &mut dyn Read,
    node: &str,
    since_ns: i64,
    now_ns: i64,
) -> Result<HashMap<String, Course>, StoreError> {
    let scope = SeriesScope::Node(node);
    let mut names = HashMap::new();
    for row in reader.series(scope)? {
        if [CPU, MEMORY, DUE, LATE, OUTBOX, SPOOL].contains(&row.metric.as_str()) {
            names.insert(row.series_id, row.metric);
        }
    }
    let ids: Vec<i64> = names.keys().copied().collect();
    let mut courses: HashMap<String, Course> = HashMap::new();
    // The clock of a node may be ahead.
    let span_ns = since_ns..now_ns.saturating_add(AHEAD_NS);
    reader.samples::<StoreError>(scope, &ids, &span_ns, |sample| {
        let Some(name) = names.get(&sample.series_id) else { return Ok(()) };
        let (time_ns, value) = (sample.time_ns, sample.value);
        match courses.get_mut(name) {
            Some(course) => course.add(time_ns, value),
            None => {
                let course = Course { first_ns: time_ns, last_ns: time_ns, last: value, increase: 0.0 };
                courses.insert(name.clone(), course);
            }
        }
        Ok(())
    })?;
    Ok(courses)
}
