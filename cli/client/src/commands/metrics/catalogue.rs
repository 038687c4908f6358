//! Catalogue of metrics as a table, as JSON and as the page `docs/reference/metrics.md`.

use polymeter_proto::catalogue::derived::{self, Derived, Formula, Input, Quantity};
use polymeter_proto::catalogue::perf::PerfEvent;
use polymeter_proto::catalogue::{
    self, Cell, Devices, Field, Hierarchy, Metric, Origin, Row, Scope, TextFile,
};
use serde::Serialize;

use crate::output::table::{head, table};

pub(super) fn text(metrics: &[&Metric], derived: &[&Derived]) -> String {
    let computed = (!derived.is_empty()).then(|| derived_text(derived));
    let sampled = (!metrics.is_empty()).then(|| sampled_text(metrics));
    sampled.into_iter().chain(computed).collect::<Vec<_>>().join("\n")
}

fn derived_text(derived: &[&Derived]) -> String {
    let mut rows = vec![head(["DERIVED METRIC", "UNIT", "MACHINE", "FORMULA"])];
    for derived in derived {
        for formula in derived.formulas {
            rows.push(vec![
                derived.name.to_owned(),
                derived.unit.to_owned(),
                formula.machine.as_str().to_owned(),
                formula_text(formula, ""),
            ]);
        }
    }
    table(&rows)
}

fn input_text(input: &Input, quote: &str) -> String {
    let name = match input.quantity {
        Quantity::Metric(name) => format!("{quote}{name}{quote}"),
        Quantity::Lines(name) => format!("the bytes of {quote}{name}{quote}, 64 for each count"),
        Quantity::Energy => "the energy of the job".to_owned(),
        Quantity::Pushed => format!("{quote}user.*{quote} of this name"),
    };
    format!("{}: {name}", input.name)
}

fn formula_text(formula: &Formula, quote: &str) -> String {
    let inputs: Vec<String> = formula.inputs.iter().map(|input| input_text(input, quote)).collect();
    format!("{quote}{}{quote}; {}", formula.expression, inputs.join(", "))
}

fn sampled_text(metrics: &[&Metric]) -> String {
    let mut rows = vec![head(["METRIC", "UNIT", "KIND", "GRANULARITY", "DESCRIPTION"])];
    for metric in metrics {
        rows.push(vec![
            metric.name.to_owned(),
            metric.unit.as_str().to_owned(),
            metric.kind.as_str().to_owned(),
            granularity(metric),
            metric.help.to_owned(),
        ]);
    }
    table(&rows)
}

#[derive(Debug, Serialize)]
pub(super) struct MetricDescription {
    name: &'static str,
    unit: &'static str,
    kind: &'static str,
    scope: &'static str,
    granularity: Option<String>,
    help: &'static str,
    origins: Vec<String>,
}

pub(super) fn json(metrics: &[&'static Metric], derived: &[&'static Derived]) -> Vec<MetricDescription> {
    let descriptions = metrics.iter().map(|metric| MetricDescription {
        name: metric.name,
        unit: metric.unit.as_str(),
        kind: metric.kind.as_str(),
        scope: scope(metric.scope),
        granularity: metric.granularity().map(|time| time.to_string()),
        help: metric.help,
        origins: metric.origins.iter().map(origin).collect(),
    });
    let computed = derived.iter().map(|derived| MetricDescription {
        name: derived.name,
        unit: derived.unit,
        kind: "derived",
        scope: scope(derived.scope),
        granularity: None,
        help: derived.help,
        origins: derived
            .formulas
            .iter()
            .map(|formula| format!("{}: {}", formula.machine.as_str(), formula_text(formula, "")))
            .collect(),
    });
    descriptions.chain(computed).collect()
}

/// Time within which the values are accurate; empty if every read is exact.
fn granularity(metric: &Metric) -> String {
    metric.granularity().map_or_else(String::new, |time| time.to_string())
}

const fn scope(scope: Scope) -> &'static str {
    match scope {
        Scope::Job => "job",
        Scope::Node => "node",
        Scope::Agent => "agent",
    }
}

/// Measured by `polymeter-bench read-cost --write`.
const READ_COST: &str = include_str!("read_cost.md");

/// Page docs/reference/metrics.md.
pub(super) fn markdown() -> String {
    let mut page = String::from(
        "# The metrics\n\n\
        Generated from the catalogue by `polymeter metrics --markdown`; a test keeps it so. A name that ends in `*` is a\n\
        family; its instances depend on the machine. A value that is not measured is absent, never 0 and never NaN.\n\n\
        The granularity is the longest time by which the kernel's value may lag; it is empty if every read is exact.\n\
        A rate over a shorter window is meaningless. CPU time is counted at ticks of the scheduler, 10 ms apart or\n\
        less (`HZ` of the kernel: 4 ms at 250, 1 ms at 1000), so that over 1 ms a busy CPU reads as 0 or as several CPUs;\n\
        `perf.task_clock` is exact at any period; on a virtual machine it includes the time that the hypervisor took\n\
        (`node.cpu.steal`). `memory.stat` is added up over the CPUs after many changes, or else every 2 s.\n\n\
        Some files of version 1 count only their own cgroup, without the steps and tasks below it: the job's value is the sum over\n\
        all of them, including removed ones.\n\n\
        On cgroup version 1 `io.*` counts only where blk-throttle or bfq count, which is where a throttle rule is set or was.\n\
        Where they have counted nothing when a job is found, and on version 2 without the io controller, the bytes are those\n\
        of the job's processes, `/proc/PID/io`, as one series without a device; the operations are absent there.\n\n\
        `node.energy.*` begins at 0 when the agent opens a counter; differences are energies, and the rate is the power in\n\
        watts. Perf events do not wrap around. Counters of powercap do, after half a minute or more: the agent also reads\n\
        them between deadlines, at half of the time that a wrap-around takes at the highest power (twice the\n\
        `constraint_*_max_power_uw`, at least 2000 W), so that any period is exact: every 16 s with the common range of\n\
        65,533 J. A counter that stands at 0, as in virtual machines, has no value. `node.energy.cores` and `node.energy.gpu` are parts of `node.energy.package`; `node.energy.memory` is not.\n\n\
        `node.gpu.*` are quantities of NVIDIA GPUs, `gpu.*` those of the GPUs of a job, with the labels `gpu` (the driver's number), `uuid` and, for MIG devices, `mig` (the number of\n\
        the GPU instance). The driver updates them every 20 to 100 ms. A quantity that a GPU does not have is absent; where no GPU has it, it is\n\
        unavailable. Counters begin when the driver is loaded. `node.gpu.throttled` and `node.gpu.throttled.time` have the label `reason`.\n\n\
        `user.*` are values that users push. `run.*` are single values that `polymeter run` stores itself: the number of CPUs at the start, and at the end the totals of the\n\
        command from wait4(2) (CPU time, page faults, context switches, peak memory) and the CPU time of measuring. Its report and `polymeter report` take the totals from them.\n",
    );
    page.push_str(&regions());
    for (title, wanted) in [
        ("Metrics of a job", Scope::Job),
        ("Metrics of the node", Scope::Node),
        ("Metrics of the agent", Scope::Agent),
    ] {
        page.push_str(&format!("\n## {title}\n\n"));
        let job = wanted == Scope::Job;
        page.push_str(if job {
            "| metric | unit | kind | granularity | what it is | cgroup v2 | cgroup v1 | elsewhere |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n"
        } else {
            "| metric | unit | kind | granularity | what it is | where it comes from |\n| --- | --- | --- | --- | --- | --- |\n"
        });
        for metric in catalogue::all().filter(|metric| metric.scope == wanted) {
            let of = |wanted: fn(&Origin) -> bool| {
                metric.origins.iter().filter(|found| wanted(found)).map(origin).collect::<Vec<_>>().join(", ")
            };
            let places = if job {
                let elsewhere = of(|origin| !matches!(origin, Origin::Text { .. }));
                format!("{} | {} | {elsewhere}", of(is_v2), of(is_v1))
            } else {
                of(|_| true)
            };
            page.push_str(&format!(
                "| `{}` | {} | {} | {} | {} | {places} |\n",
                metric.name,
                metric.unit.as_str(),
                metric.kind.as_str(),
                granularity(metric),
                metric.help
            ));
        }
    }
    page.push_str(&derived_page());
    page.push_str(
        "\n## Cost of a read\n\n\
        The CPU time of one read of all values of a source, and its ratio to a bare `pread` in the same run, as `read-cost` of\n\
        [the benches](../../benches/README.md) measured it on a virtual machine. A metric of a kind costs a share of its source's\n\
        read: all metrics of a source with the same period are read together. Sources of the slow lane also wake their thread. The\n\
        sources of devices and of some file systems were laid out: files of a temporary directory, a library or a program stand in for\n\
        them, so that the time of an adapter or of a GPU's driver is missing.\n\n",
    );
    page.push_str(READ_COST);
    page
}

/// Part of the page about regions of programs.
fn regions() -> String {
    let mut part = String::from(
        "\n`region.*` are counted by [instrumented programs](../how-to/regions.md), by the labels `region`, `process` and `rank`. The agent reads\n`process.rank` in the environment of a process, where a launcher numbers processes; its labels are `process` and `rank`:\n\n\
        | metric | unit | kind | what it is |\n| --- | --- | --- | --- |\n",
    );
    for metric in catalogue::REGIONS.iter().chain([&catalogue::PROCESS_RANK]) {
        let [unit, kind] = [metric.unit.as_str(), metric.kind.as_str()];
        part.push_str(&format!("| `{}` | {unit} | {kind} | {} |\n", metric.name, metric.help));
    }
    part
}

fn derived_page() -> String {
    let mut page = String::from(
        "\n## Derived metrics\n\n\
        Reports, comparisons and charts compute them from the increases of their inputs over the same time, so that a mean is a\n\
        ratio of sums. Where several groups of events shared hardware counters, the increases are scaled by `perf.time_enabled` /\n\
        `perf.time_running` of their group. To sample the inputs, name the derived metric: `polymeter set perf.ipc=100ms`. In a\n\
        formula, a name is the increase of its input, and `seconds` the length of the time. The event codes and formulas of\n\
        `perf.flops` and `node.dram.bandwidth` are from the manufacturers' documents and not yet verified on hardware: neither on\n\
        Intel (Broadwell to Granite Rapids), nor on AMD (Zen 1 to 4), nor on Neoverse V2 (Grace).\n\n\
        | metric | unit | of | what it is | machine | formula |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for derived in derived::all() {
        for formula in derived.formulas {
            page.push_str(&format!(
                "| `{}` | {} | {} | {} | {} | {} |\n",
                derived.name,
                derived.unit,
                scope(derived.scope),
                derived.help,
                formula.machine.as_str(),
                formula_text(formula, "`")
            ));
        }
    }
    page
}

const fn is_v2(origin: &Origin) -> bool {
    matches!(origin, Origin::Text { file: TextFile { hierarchy: Hierarchy::V2, .. }, .. })
}

const fn is_v1(origin: &Origin) -> bool {
    matches!(origin, Origin::Text { file: TextFile { hierarchy: Hierarchy::V1(_), .. }, .. })
}

fn origin(origin: &Origin) -> String {
    match origin {
        Origin::Text { file, field } => place(file, field),
        Origin::Perf(event) => perf(*event),
        Origin::Source(field) => field.place.to_owned(),
    }
}

fn place(file: &TextFile, field: &Field) -> String {
    let path = match file.hierarchy {
        Hierarchy::Proc => format!("`/proc/{}`", file.path),
        Hierarchy::Sys => format!("`/sys/{}`", file.path),
        Hierarchy::V1(_) | Hierarchy::V2 => format!("`{}`", file.path),
    };
    let row = match field.row {
        Row::Only => String::new(),
        Row::Key(key) => format!(" `{key}`"),
        Row::Instance(_) => " each line".to_owned(),
        Row::Each { label, .. } => format!(" each {label}"),
    };
    let cell = match field.cell {
        Cell::Named(name) => format!(" `{name}`"),
        Cell::Each(label) => format!(" each {label}"),
        Cell::Word(word) if word > 1 => format!(" word {}", word + 1),
        Cell::Word(_) => String::new(),
    };
    let devices = match file.devices {
        Devices::All => String::new(),
        Devices::Named(prefix) => format!(" of `{prefix}*`"),
        Devices::NotNamed(prefix) => format!(" except of `{prefix}*`"),
    };
    let sum = if file.is_local { ", sum over it and all below" } else { "" };
    format!("{path}{row}{cell}{devices}{sum}")
}

fn perf(event: PerfEvent) -> String {
    match event {
        PerfEvent::Software(config) => format!("perf software event {config}"),
        PerfEvent::Hardware(config) => format!("perf hardware event {config}"),
        PerfEvent::Cache(config) => format!("perf cache event {config:#x}"),
        PerfEvent::Raw => "perf raw event".to_owned(),
        PerfEvent::Named => "perf event of the CPU's PMU".to_owned(),
        PerfEvent::Unit => "perf event of the PMU's units".to_owned(),
        PerfEvent::Tracepoint => "perf tracepoint".to_owned(),
        PerfEvent::TimeEnabled
        | PerfEvent::TimeRunning
        | PerfEvent::UnitTimeEnabled
        | PerfEvent::UnitTimeRunning => "perf group times".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_the_tree_is_the_catalogue() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");
        if std::env::var_os("POLYMETER_BLESS").is_some() {
            return std::fs::write(path, markdown()).unwrap();
        }
        let page = std::fs::read_to_string(path).unwrap();
        assert!(page == markdown(), "docs/reference/metrics.md is old: run `make bless`");
    }
}
