//! Facts about the distribution of work over nodes and tasks. Pure.

use std::collections::BTreeMap;

use polymeter_proto::units::to_f64;

use super::values::{Facts, ratio};
use crate::model::{NodeReport, RegionSpread, Report, TaskReport};

/// A node is idle below this share of the busiest node's CPU time.
const IDLE_SHARE: f64 = 0.05;

/// `used_s` returns the CPU time of a node, given with its place in the report, in which a core counts once.
pub(super) fn add(facts: &mut Facts, report: &Report, used_s: impl Fn(usize, &NodeReport) -> Option<f64>) {
    add_nodes(facts, report, used_s);
    add_ranks(facts, report);
    add_regions(facts, report);
}

fn add_nodes(facts: &mut Facts, report: &Report, used_s: impl Fn(usize, &NodeReport) -> Option<f64>) {
    // A node whose CPU time is unknown is not idle.
    let by_node = report.by_node.iter().enumerate();
    let known = by_node.map(|(place, node)| {
        let of_node = used_s(place, node).filter(|_| !node.is_lost)?;
        Some((of_node, node.node.as_str()))
    });
    let Some(mut nodes) = known.collect::<Option<Vec<_>>>() else { return };
    nodes.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let (Some((idlest_s, idlest)), Some((busiest_s, busiest))) =
        (nodes.first().copied(), nodes.last().copied())
    else {
        return;
    };
    let elapsed = facts.number("elapsed");
    let per_node = facts.number("cores_per_node");
    for (prefix, cpu_s, name) in [("busiest", busiest_s, busiest), ("idlest", idlest_s, idlest)] {
        let cores = ratio(Some(cpu_s), elapsed);
        let names = if prefix == "busiest" {
            ["busiest_node", "busiest_node_cores", "busiest_node_efficiency"]
        } else {
            ["idlest_node", "idlest_node_cores", "idlest_node_efficiency"]
        };
        let [node, used, efficiency] = names;
        facts.set_text(node, Some(name));
        facts.set_number(used, cores);
        facts.set_number(efficiency, ratio(cores, per_node));
    }
    facts.set_number("idlest_node_share", ratio(Some(idlest_s), Some(busiest_s)));
    let idle = nodes.iter().filter(|(cpu_s, _)| *cpu_s < IDLE_SHARE * busiest_s).count();
    facts.set_number("idle_nodes", Some(to_f64(idle as u64)));
    let count = to_f64(nodes.len() as u64);
    let mean = nodes.iter().map(|(cpu_s, _)| cpu_s).sum::<f64>() / count;
    facts.set_number("node_imbalance", ratio(Some(busiest_s), Some(mean)));
    let middle = |at: usize| nodes.get(at).map_or(0.0, |(cpu_s, _)| *cpu_s);
    let median = f64::midpoint(middle((nodes.len() - 1) / 2), middle(nodes.len() / 2));
    facts.set_number("slowest_node_ratio", ratio(Some(busiest_s), Some(median)));
}

/// Adds the facts about the region in which one rank spent most beyond the mean.
fn add_regions(facts: &mut Facts, report: &Report) {
    let spreads = report.regions.iter().filter_map(|region| Some((region, region.ranks.as_ref()?)));
    let excess = |spread: &RegionSpread| spread.most_s - spread.mean_s;
    let widest = spreads.max_by(|one, other| excess(one.1).total_cmp(&excess(other.1)));
    let Some((region, spread)) = widest else { return };
    facts.set_number("region_ranks", Some(to_f64(spread.count)));
    facts.set_text("uneven_region", Some(region.region.clone()));
    facts.set_text("uneven_region_rank", Some(spread.most.clone()));
    facts.set_number("region_imbalance", ratio(Some(spread.most_s), Some(spread.mean_s)));
    facts.set_number("region_excess", ratio(Some(excess(spread)), facts.number("elapsed")));
}

fn add_ranks(facts: &mut Facts, report: &Report) {
    let mut steps: BTreeMap<&str, Vec<&TaskReport>> = BTreeMap::new();
    for task in &report.tasks {
        steps.entry(&task.step).or_default().push(task);
    }
    let Some(tasks) = steps.into_values().max_by_key(Vec::len) else { return };
    facts.set_number("ranks", Some(to_f64(tasks.len() as u64)));
    let known: Option<Vec<f64>> = tasks.iter().map(|task| task.used.cpu_s).collect();
    let Some(known) = known else { return };
    let mean = known.iter().sum::<f64>() / to_f64(known.len() as u64);
    let busiest = tasks.iter().max_by(|one, other| {
        one.used.cpu_s.partial_cmp(&other.used.cpu_s).unwrap_or(std::cmp::Ordering::Equal)
    });
    facts.set_number("rank_imbalance", ratio(busiest.and_then(|task| task.used.cpu_s), Some(mean)));
    facts.set_text("busiest_rank", busiest.map(|task| task.task.clone()));
}
