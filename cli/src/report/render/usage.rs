//! Resource usage of a job as text. Pure.

use super::paragraph::paragraph;
use crate::output::units;
use crate::report::summary;
use polymeter_analysis::device_text::device_text;
use polymeter_analysis::energy_text::energy_sources_text;
use polymeter_analysis::model::Report;

pub(super) fn text(report: &Report, limit: Option<usize>) -> String {
    let used = &report.used;
    let bytes = |value: f64| units::value("bytes", value);
    let mut rows = vec![("wall time", format!("{:.3} s", report.wall_s))];
    if let Some(cpu_s) = used.cpu_s {
        let parts = match (used.user_s, used.system_s) {
            (Some(user_s), Some(system_s)) => format!(" (user {user_s:.3} s, system {system_s:.3} s)"),
            _ => String::new(),
        };
        let cores = if report.wall_s > 0.0 { cpu_s / report.wall_s } else { 0.0 };
        rows.push(("CPU time", format!("{cpu_s:.3} s{parts}, {cores:.2} cores used")));
    }
    if let Some(peak) = used.peak_memory_bytes {
        let has_cgroup = report.by_node.iter().any(|node| node.used.cgroup_peak_bytes.is_some());
        let kind = if has_cgroup { "cgroup, cache included" } else { "resident" };
        rows.push(("peak memory", format!("{} ({kind})", bytes(peak))));
    }
    if let (Some(read), Some(written)) = (used.read_bytes, used.written_bytes) {
        rows.push(("I/O", format!("{} read, {} written", bytes(read), bytes(written))));
    }
    let of_nodes = [
        ("network", summary::network(report)),
        ("file systems", summary::file_systems(report)),
        ("energy", summary::energy(report)),
        ("devices", device_text(report)),
        ("energy by source", energy_sources_text(report)),
    ];
    rows.extend(of_nodes.into_iter().filter_map(|(label, text)| Some((label, text?))));
    if let Some(faults) = used.page_faults {
        let major =
            used.page_faults_major.map_or_else(String::new, |major| format!(", {major:.0} of them major"));
        rows.push(("page faults", format!("{faults:.0}{major}")));
    }
    if let Some(switches) = used.context_switches {
        let migrations = used
            .cpu_migrations
            .map_or_else(String::new, |migrations| format!(", {migrations:.0} CPU migrations"));
        rows.push(("context switches", format!("{switches:.0}{migrations}")));
    }
    let cost = report.measuring.as_ref().map(|cost| summary::measuring_cost(cost, report.nodes.len()));
    rows.extend(cost.map(|cost| ("measuring cost", cost)));
    rows.into_iter().map(|(label, value)| paragraph(label, &value, limit)).collect()
}
