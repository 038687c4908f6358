//! `polymeter metrics --job` and `--node`: the availability and read cost of metrics.

use polymeter_proto::control::{Answer, MetricLine, MetricsAnswer, MetricsRequest, Request};
use polymeter_proto::name::Selector;

use crate::connection::agent::{AgentOptions, ask, unexpected};
use crate::failure::Failure;
use crate::output::table::{figure, head, table_within};
use crate::output::{terminal, units};

pub(super) fn execute(agent: &AgentOptions, job: Option<String>, selector: &Selector) -> Result<(), Failure> {
    let owners = if job.is_some() { "jobs" } else { "nodes" };
    let answer = ask(&agent.socket, &Request::Metrics(MetricsRequest { job }))?;
    let Answer::Metrics(MetricsAnswer { mut metrics }) = answer else { return Err(unexpected(answer)) };
    metrics.retain(|line| selector.matches(&line.metric));
    if metrics.is_empty() {
        return Err(Failure::Failed(format!(
            "unknown metric `{selector}`: no metric of {owners} matches it; `polymeter metrics` lists all metrics"
        )));
    }
    if agent.json {
        terminal::print_json(&Answer::Metrics(MetricsAnswer { metrics }))
    } else {
        terminal::print(&text(&metrics, terminal::width_limit(&std::io::stdout())))
    }
}

fn text(metrics: &[MetricLine], limit: Option<usize>) -> String {
    let cell = |known: &Option<String>| figure(known.as_deref(), str::to_owned);
    let mut rows = vec![head(["METRIC", "UNIT", "PERIOD", "READ COST", "SOURCE"])];
    let (available, unavailable): (Vec<_>, Vec<_>) = metrics.iter().partition(|line| line.available);
    for line in available.into_iter().chain(unavailable) {
        let read_cost = line.read_ns.filter(|ns| *ns > 0.0).map(units::duration_f64);
        let source = match (&line.reason, &line.refresh_interval) {
            (None, None) => cell(&line.source),
            (None, Some(interval)) => format!("{}, changes every {interval}", cell(&line.source)),
            (Some(reason), _) => format!("not available: {reason}"),
        };
        rows.push(vec![line.metric.clone(), cell(&line.unit), cell(&line.period), cell(&read_cost), source]);
    }
    table_within(&rows, limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot;

    #[test]
    fn metrics_are_laid_out_as_recorded() {
        let metrics = serde_json::json!([
            {"metric": "cpu.pressure.some.total", "unit": "nanoseconds", "available": false,
             "reason": "cpu.pressure: No such file or directory"},
            {"metric": "cpu.usage", "unit": "nanoseconds", "available": true, "source": "v2/cpu.stat",
             "read_ns": 2150.0, "period": "1s"},
            {"metric": "memory.current", "unit": "bytes", "available": true, "source": "v2/memory.current",
             "read_ns": 840.0},
            {"metric": "node.hwmon.power", "unit": "watts", "available": true, "source": "sys/class/hwmon/hwmon4",
             "refresh_interval": "1s"},
        ]);
        let metrics: Vec<MetricLine> = serde_json::from_value(metrics).unwrap();
        snapshot::check("metrics-of-job", &text(&metrics, None));
    }
}
