//! Values of jobs' nodes that collectors exchange, so that each of them compares all nodes of its jobs.

use polymeter_proto::series::Identifier;

use crate::backend::Connection;
use crate::error::{Context, DatabaseError};
use crate::removal;
use crate::row::from_row;
use crate::value::{Batch, Column, ColumnType, Value};
use crate::{StoreError, StoreUrl};

/// Time for which values stay, by the clock of the database: several times as long as a collector waits for
/// them.
const KEPT_US: i64 = 60_000_000;

/// Amount and weight of a node in an interval. Its value is the quotient.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeSum {
    pub node: Identifier,
    /// Growth of a counter, or sum of the samples of a gauge.
    pub amount: f64,
    /// Seconds of a counter, samples of a gauge.
    pub weight: f64,
}

/// Values of a metric on those nodes of a job whose agents send to one collector, in one interval.
#[derive(Debug, Clone, PartialEq)]
pub struct JobPart {
    pub job_key: i64,
    pub metric: String,
    /// End of the interval, in microseconds since the epoch.
    pub ended_us: i64,
    pub nodes: Vec<NodeSum>,
}

/// Interval of a job of which a collector lacks the values of other collectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedParts {
    pub job_key: i64,
    pub metric: String,
    pub ended_us: i64,
    /// Collectors whose values are known.
    pub known: Vec<String>,
}

#[derive(Debug)]
struct Stored {
    job_key: i64,
    metric: String,
    ended_us: i64,
    collector_id: String,
    nodes: String,
}

from_row!(Stored { job_key, metric, ended_us: TimeUs, collector_id, nodes });

const PART: [Column; 5] = [
    ("job_key", ColumnType::Integer),
    ("metric", ColumnType::Text),
    ("ended", ColumnType::Time),
    ("collector_id", ColumnType::Text),
    ("nodes", ColumnType::Text),
];

const WANTED: [Column; 4] = [
    ("job_key", ColumnType::Integer),
    ("metric", ColumnType::Text),
    ("ended", ColumnType::Time),
    ("known", ColumnType::Text),
];

/// Connection to the exchanged values. After an error its state is unknown, and it must be dropped.
#[derive(Debug)]
pub struct StragglerTable(Box<dyn Connection>);

impl StragglerTable {
    /// Connects to a store of this version, and changes nothing.
    pub fn open(url: &StoreUrl) -> Result<Self, StoreError> {
        Ok(Self(url.open_current_version()?.connection))
    }

    /// Stores the parts of a collector, and returns those of others that it wants, each with the id of its
    /// collector, in the order of the ends.
    pub fn exchange(
        &mut self,
        collector_id: &str,
        parts: &[JobPart],
        wanted: &[WantedParts],
    ) -> Result<Vec<(String, JobPart)>, StoreError> {
        const ACTION: &str = "exchange the values of jobs' nodes";
        let connection = &mut *self.0;
        let now_us = if parts.is_empty() { None } else { Some(removal::now_us(connection)?) };
        connection.begin().context(ACTION)?;
        if let Some(now_us) = now_us {
            insert(connection, collector_id, parts, now_us).context(ACTION)?;
        }
        let found = select(connection, collector_id, wanted).context(ACTION)?;
        connection.commit().context(ACTION)?;
        Ok(found)
    }
}

fn insert(
    connection: &mut dyn Connection,
    collector_id: &str,
    parts: &[JobPart],
    now_us: i64,
) -> Result<(), DatabaseError> {
    let rows = parts.iter().map(|part| {
        [
            part.job_key.into(),
            part.metric.as_str().into(),
            Value::time(part.ended_us),
            collector_id.into(),
            encode(&part.nodes).into(),
        ]
    });
    connection.execute_batch(
        "INSERT INTO straggler_part (job_key, metric, ended, collector_id, nodes, written)
         SELECT job_key, metric, ended, collector_id, nodes, {now} FROM {new} WHERE true
         ON CONFLICT (job_key, metric, ended, collector_id) DO NOTHING",
        &Batch::new(&PART, rows),
    )?;
    let delete = "DELETE FROM straggler_part WHERE written < $1";
    connection.execute(delete, &[Value::Time(now_us - KEPT_US)]).map(drop)
}

fn select(
    connection: &mut dyn Connection,
    collector_id: &str,
    wanted: &[WantedParts],
) -> Result<Vec<(String, JobPart)>, DatabaseError> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let rows = wanted.iter().map(|wanted| {
        // Ids of collectors contain no space.
        let known = format!("{} {collector_id}", wanted.known.join(" "));
        [wanted.job_key.into(), wanted.metric.as_str().into(), Value::time(wanted.ended_us), known.into()]
    });
    let mut stored: Vec<Stored> = connection.select_batch(
        "SELECT part.job_key, part.metric, part.ended, part.collector_id, part.nodes
         FROM {new} JOIN straggler_part AS part ON part.job_key = new.job_key
             AND part.metric = new.metric AND part.ended = new.ended
         WHERE new.known NOT LIKE '%' || part.collector_id || '%'",
        &Batch::new(&WANTED, rows),
    )?;
    stored.sort_by_key(|stored| stored.ended_us);
    // What another version wrote otherwise is missing.
    let read = stored.into_iter().filter_map(|stored| {
        let Stored { job_key, metric, ended_us, collector_id, nodes } = stored;
        Some((collector_id, JobPart { job_key, metric, ended_us, nodes: decode(&nodes)? }))
    });
    Ok(read.collect())
}

/// Encodes them as JSON: an array of `[node, amount, weight]`.
fn encode(nodes: &[NodeSum]) -> String {
    let finite = nodes.iter().filter(|sum| sum.amount.is_finite() && sum.weight.is_finite());
    let values = finite.map(|sum| serde_json::json!([sum.node.as_str(), sum.amount, sum.weight]));
    serde_json::Value::Array(values.collect()).to_string()
}

fn decode(text: &str) -> Option<Vec<NodeSum>> {
    let values: Vec<(Identifier, f64, f64)> = serde_json::from_str(text).ok()?;
    Some(values.into_iter().map(|(node, amount, weight)| NodeSum { node, amount, weight }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite;

    const ENDED_US: i64 = 1_700_000_002_500_000;

    fn part(job_key: i64, ended_us: i64, nodes: &[&str]) -> JobPart {
        let sum = |node: &&str| NodeSum { node: (*node).try_into().unwrap(), amount: 0.1, weight: 5.0 };
        let nodes = nodes.iter().map(sum).collect();
        JobPart { job_key, metric: "cpu.usage".to_owned(), ended_us, nodes }
    }

    fn wanted(job_key: i64, ended_us: i64, known: &[&str]) -> WantedParts {
        let known = known.iter().map(|id| (*id).to_owned()).collect();
        WantedParts { job_key, metric: "cpu.usage".to_owned(), ended_us, known }
    }

    #[test]
    fn each_collector_gets_the_parts_of_the_others_that_it_lacks() {
        let (_directory, connection) = sqlite::new_store();
        let mut table = StragglerTable(connection);
        let (first, second) = (part(1, ENDED_US, &["n1", "n 2"]), part(1, ENDED_US, &["n3"]));
        assert_eq!(table.exchange("a", std::slice::from_ref(&first), &[]).unwrap(), []);
        let other = part(2, ENDED_US, &["n4"]);
        let later = part(1, ENDED_US + 5_000_000, &[]);
        let all = [later.clone(), second.clone(), other];
        let found = table.exchange("b", &all, &[wanted(1, ENDED_US, &[])]).unwrap();
        assert_eq!(found, [("a".to_owned(), first.clone())], "its own are known to it");
        let both = [wanted(1, ENDED_US + 5_000_000, &[]), wanted(1, ENDED_US, &[])];
        let found = table.exchange("c", &[], &both).unwrap();
        assert_eq!(found.last().unwrap(), &("b".to_owned(), later), "in the order of the ends");
        assert_eq!(found.len(), 3);
        let found = table.exchange("c", &[], &[wanted(1, ENDED_US, &["a", "x"])]).unwrap();
        assert_eq!(found, [("b".to_owned(), second)]);
        // It is stored once, as it was.
        table.exchange("a", &[part(1, ENDED_US, &["n9"])], &[]).unwrap();
        assert_eq!(table.exchange("b", &[], &[wanted(1, ENDED_US, &[])]).unwrap(), [("a".to_owned(), first)]);
    }

    #[test]
    fn old_parts_are_removed_by_the_clock_of_the_database() {
        let (_directory, connection) = sqlite::new_store();
        let mut table = StragglerTable(connection);
        table.exchange("a", &[part(1, ENDED_US, &["n1"])], &[]).unwrap();
        let now_us = removal::now_us(&mut *table.0).unwrap();
        let update = "UPDATE straggler_part SET written = $1";
        table.0.execute(update, &[Value::Time(now_us - KEPT_US - 1_000_000)]).unwrap();
        assert_eq!(table.exchange("b", &[], &[wanted(1, ENDED_US, &[])]).unwrap().len(), 1);
        table.exchange("b", &[part(2, i64::MAX, &[]), part(3, i64::MIN, &[])], &[]).unwrap();
        let left: i64 = table.0.select_one("SELECT count(*) FROM straggler_part", &[]).unwrap();
        assert_eq!(left, 2);
    }

    #[test]
    fn only_finite_values_of_nodes_with_valid_names_are_passed() {
        let mut one = part(1, ENDED_US, &["n1", "n2", "n3"]);
        one.nodes[0].amount = f64::INFINITY;
        one.nodes[1].weight = f64::NAN;
        assert_eq!(decode(&encode(&one.nodes)).unwrap(), [one.nodes[2].clone()]);
        for text in
            ["", "{}", "[[\"n1\", 1]]", "[[\"\", 1, 1]]", "[[\"n\\u0000\", 1, 1]]", "[[\"n\", \"1\", 1]]"]
        {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
