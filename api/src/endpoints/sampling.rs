//! Sampling of a job by metric and level over all of its nodes: bounded, whatever their number.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use polymeter_proto::control::{JobAnswer, NodeAnswer, PlanAnswer, PlanLine};
use polymeter_store::reader::PlanChangeRow;
use serde_json::{Map, Value, json};

use super::parameters::{KEY, find_job, key};
use crate::answer::Failure;
use crate::limits;
use crate::request::{Endpoint, OBJECT};

pub(super) static SAMPLING: Endpoint = Endpoint {
    path: "/api/v1/jobs/{key}/sampling",
    id: "sampling",
    summary: "The periods of a job's metrics over all nodes, with their causes: of a running job the present ones, as its agents report \
        them to its owner and root, otherwise the last ones that are stored.",
    parameters: &[KEY],
    formats: OBJECT,
    answer: schema,
    body: None,
    handler: |call| {
        Box::pin(async move {
            let (key, uid) = (key(&call.arguments), call.principal.uid);
            let of_store = call.services.readers.read(call.principal, move |reader, _| {
                let job = find_job(reader, key)?;
                // Agents answer the owner and root. Others who may see the job get what is stored of it.
                let is_asked = job.ended_ns.is_none() && (uid == 0 || job.owner_uid == Some(uid.into()));
                let changes = if is_asked { None } else { Some(reader.plan_changes(key)?) };
                Ok::<_, Failure>((job.job_id, changes))
            });
            let sampling = match of_store.await? {
                (_, Some(changes)) => Sampling::last(&changes),
                (job_id, None) => Sampling::present(call.ask_agents(&job_id, "plan", Map::new()).await?),
            };
            Ok(call.reply(sampling.object().to_string()))
        })
    },
};

fn schema() -> Value {
    let texts = json!({"type": "array", "items": {"type": "string"}});
    json!({
        "type": "object",
        "required": ["metrics", "unavailable", "silent_nodes", "silent"],
        "properties": {
            "metrics": {"type": "array", "items": {
                "type": "object",
                "required": ["metric", "level", "periods", "causes", "reasons", "until_us"],
                "properties": {
                    "metric": {"type": "string"}, "level": {"type": ["string", "null"]},
                    "periods": texts, "causes": texts, "reasons": texts, "until_us": {"type": ["integer", "null"]},
                },
            }},
            "unavailable": texts,
            "silent_nodes": {"type": "array", "items": {"type": "string"}, "description": "Some of the nodes that did not answer."},
            "silent": {"type": "integer", "description": "The number of nodes that did not answer."},
        },
    })
}

/// Distinct values of a metric's sampling over nodes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Row {
    periods: BTreeSet<String>,
    causes: BTreeSet<String>,
    reasons: BTreeSet<String>,
    until_us: Option<i64>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Sampling {
    /// Grouped by metric and level.
    rows: BTreeMap<(String, Option<String>), Row>,
    unavailable: BTreeSet<String>,
    silent_nodes: Vec<String>,
    silent: u64,
}

/// Adds a text to those that are listed, unless there are too many.
fn list(texts: &mut BTreeSet<String>, text: String) {
    if texts.len() < limits::LISTED_TEXTS {
        texts.insert(text);
    }
}

impl Sampling {
    /// Takes it as the agents report it.
    fn present(answer: JobAnswer) -> Self {
        let mut sampling = Self::default();
        for NodeAnswer { node, answer } in answer.nodes {
            let plan = answer.map(serde_json::from_value::<PlanAnswer>).and_then(Result::ok);
            let Some(plan) = plan else {
                sampling.silent += 1;
                if sampling.silent_nodes.len() < limits::LISTED_TEXTS {
                    sampling.silent_nodes.push(node);
                }
                continue;
            };
            plan.plan.into_iter().for_each(|line| sampling.line(line));
            for (metric, reason) in plan.unavailable {
                list(&mut sampling.unavailable, format!("{metric}: {reason}"));
            }
        }
        sampling
    }

    fn line(&mut self, line: PlanLine) {
        let level = line.level.map(|level| level.as_str().to_owned());
        let row = self.rows.entry((line.metric, level)).or_default();
        list(&mut row.periods, line.period);
        list(&mut row.causes, cause(&line.cause, line.actor.as_deref()));
        line.reason.into_iter().for_each(|reason| list(&mut row.reasons, reason));
        row.until_us = row.until_us.max(line.until_us);
    }

    /// Changes of the plan in the order of their times.
    fn last(changes: &[PlanChangeRow]) -> Self {
        let mut last: HashMap<(&str, &str, Option<&str>), &PlanChangeRow> = HashMap::new();
        for change in changes.iter().filter(|change| change.new_period_us.is_some()) {
            last.insert((&change.node, &change.metric, change.level.as_deref()), change);
        }
        let mut sampling = Self::default();
        for ((_, metric, level), change) in last {
            let row = sampling.rows.entry((metric.to_owned(), level.map(str::to_owned))).or_default();
            change
                .new_sampling()
                .into_iter()
                .for_each(|sampling| list(&mut row.periods, sampling.to_string()));
            list(&mut row.causes, cause(&change.cause, change.actor.as_deref()));
        }
        sampling
    }

    fn object(&self) -> Value {
        let mut rows = Vec::new();
        for ((metric, level), Row { periods, causes, reasons, until_us }) in &self.rows {
            rows.push(json!({
                "metric": metric, "level": level, "periods": periods, "causes": causes, "reasons": reasons, "until_us": until_us,
            }));
        }
        json!({
            "metrics": rows,
            "unavailable": self.unavailable,
            "silent_nodes": self.silent_nodes,
            "silent": self.silent,
        })
    }
}

fn cause(cause: &str, actor: Option<&str>) -> String {
    actor.map_or_else(|| cause.to_owned(), |actor| format!("{cause} of {actor}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, answer: Option<Value>) -> NodeAnswer {
        NodeAnswer { node: name.to_owned(), answer }
    }

    fn plan(period: &str, more: Value) -> Option<Value> {
        let mut line = json!({"metric": "cpu.usage", "period": period, "cause": "baseline"});
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Some(json!({"answer": "plan", "plan": [line], "unavailable": [["gpu.power", "there is no GPU"]]}))
    }

    #[test]
    fn nodes_with_the_same_sampling_are_one_row() {
        let mut nodes: Vec<NodeAnswer> =
            (0..500).map(|number| node(&format!("n{number}"), plan("1s", json!({})))).collect();
        nodes.push(node("x", plan("200ms", json!({"cause": "lease", "actor": "uid 5", "until_us": 9}))));
        nodes.extend((0..300).map(|number| node(&format!("s{number}"), None)));
        let sampling = Sampling::present(JobAnswer { job: "7".to_owned(), at_us: None, nodes }).object();
        assert_eq!(
            sampling["metrics"],
            json!([{
                "metric": "cpu.usage", "level": null, "periods": ["1s", "200ms"],
                "causes": ["baseline", "lease of uid 5"], "reasons": [], "until_us": 9,
            }])
        );
        assert_eq!(sampling["unavailable"], json!(["gpu.power: there is no GPU"]));
        assert_eq!((sampling["silent"].as_u64(), &sampling["silent_nodes"][0]), (Some(300), &json!("s0")));
        assert_eq!(sampling["silent_nodes"].as_array().unwrap().len(), limits::LISTED_TEXTS);
    }

    fn change(
        node: &str,
        old_period_us: Option<i64>,
        new_period_us: Option<i64>,
        cause: &str,
    ) -> PlanChangeRow {
        PlanChangeRow {
            time_ns: 0,
            node: node.to_owned(),
            metric: "cpu.usage".to_owned(),
            old_period_us,
            new_period_us,
            old_window_us: None,
            new_window_us: None,
            cause: cause.to_owned(),
            actor: (cause == "lease").then(|| "uid 5".to_owned()),
            until_ns: None,
            level: None,
        }
    }

    #[test]
    fn the_last_periods_of_an_ended_job_follow_from_the_changes() {
        let changes = [
            change("a", None, Some(1_000_000), "baseline"),
            change("b", None, Some(1_000_000), "baseline"),
            change("a", Some(1_000_000), Some(200_000), "lease"),
            change("b", Some(1_000_000), None, "ended"),
        ];
        let sampling = Sampling::last(&changes).object();
        assert_eq!(sampling["metrics"][0]["periods"], json!(["1s", "200ms"]));
        assert_eq!(sampling["metrics"][0]["causes"], json!(["baseline", "lease of uid 5"]));
    }
}
