//! Cost of measuring a job, from the series in which the agents report it. Pure.

use crate::model::{MeasuringCost, SeriesReport};

/// CPU time of the agent for a job. It begins at 0 when the agent begins to sample the job.
pub(crate) const CPU_TIME: &str = "agent.job.cpu.time";

/// Cost over all nodes that report it, for a job of `wall_s` seconds; none if no node does.
pub(crate) fn cost(series: &[SeriesReport], wall_s: f64) -> Option<MeasuringCost> {
    let of_metric = series.iter().filter(|series| series.metric == CPU_TIME);
    let nodes: Vec<(&str, f64)> =
        of_metric.filter_map(|series| Some((series.node.as_str(), series.growth? / 1e9))).collect();
    MeasuringCost::of(&nodes, wall_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{counter, on};

    #[test]
    fn the_cost_of_all_nodes_is_added_up() {
        let series = [
            on("n1", counter(CPU_TIME, &[0.5, 1.5])),
            on("n2", counter(CPU_TIME, &[1.0])),
            on("n3", counter("cpu.usage", &[900.0])),
        ];
        let cost = cost(&series, 100.0).unwrap();
        assert_eq!((cost.nodes, cost.highest_node.as_deref()), (2, Some("n1")));
        let near = |value: f64, expected: f64| (value - expected).abs() < 1e-9;
        assert!(near(cost.cpu_s, 3.0) && near(cost.core_percent.unwrap(), 1.5), "{cost:?}");
        assert!(near(cost.highest_core_percent.unwrap(), 2.0), "{cost:?}");
    }

    #[test]
    fn a_short_job_has_no_share_of_a_core() {
        let share = |wall_s| cost(&[counter(CPU_TIME, &[0.05])], wall_s).unwrap().core_percent;
        assert_eq!((share(0.002), share(0.0), share(0.999)), (None, None, None));
        assert!(share(1.0).is_some_and(|percent| (percent - 5.0).abs() < 1e-9));
    }

    #[test]
    fn without_the_metric_it_is_unknown() {
        assert!(cost(&[counter("cpu.usage", &[1.0])], 100.0).is_none());
    }
}
