//! The tables of results.

use polymeter_benches::store::Kind;
use polymeter_benches::table::{self, say, to_f64};

use super::arguments::Arguments;
use super::collected::Collected;
use super::prometheus::Block;
use super::scraped::Scraped;

/// Values in one sample of an agent, or on one page of an exporter.
const PER_PAGE: u64 = 50;

/// Prints the setup, and a table of the collector's and the store's usage for each number of agents.
pub(crate) fn collected(arguments: &Arguments, kind: Kind, outcomes: &[Collected]) {
    say(&format!(
        "{kind}; every agent sends 50 values every {}, for {} s; {} to a connection; {} collectors; CPU in seconds per minute; memory at most",
        arguments.period, arguments.seconds, arguments.per_connection, arguments.collectors
    ));
    say("");
    table::table(
        &[
            "agents",
            "sent",
            "stored",
            "stuck",
            "samples/s",
            "collectors CPU",
            "server CPU",
            "agents' CPU",
            "both / agents'",
            "samples per CPU s of both",
            "collectors",
            "KiB per agent",
            "server",
            "bytes per sample",
            "first round s",
        ],
        &outcomes.iter().map(|outcome| collected_row(arguments, outcome)).collect::<Vec<_>>(),
    );
}

fn collected_row(arguments: &Arguments, outcome: &Collected) -> Vec<String> {
    let cpu = |cpu_s: f64| per_minute(cpu_s, outcome.seconds);
    let both_s = outcome.collector.cpu_s + outcome.server.cpu_s;
    // The first rounds are stored, but not in the measured time.
    let first = outcome.agents * PER_PAGE * (1 + arguments.warm_up);
    let steady = outcome.expected.saturating_sub(first);
    vec![
        outcome.agents.to_string(),
        outcome.expected.to_string(),
        outcome.stored.to_string(),
        outcome.stuck.to_string(),
        format!("{:.0}", to_f64(steady) / outcome.seconds),
        cpu(outcome.collector.cpu_s),
        cpu(outcome.server.cpu_s),
        cpu(outcome.mocks_cpu_s),
        format!("{:.2}", both_s / outcome.mocks_cpu_s.max(1e-9)),
        format!("{:.0} k", to_f64(steady) / both_s.max(1e-9) / 1e3),
        mib(outcome.collector.memory_kib),
        format!("{:.1}", to_f64(outcome.collector.memory_kib) / to_f64(outcome.agents.max(1))),
        mib(outcome.server.memory_kib),
        format!("{:.1}", to_f64(outcome.bytes) / to_f64(outcome.stored.max(1))),
        format!("{:.1}", outcome.first_s),
    ]
}

/// Prints the setup of Prometheus, and a table of its usage for each number of exporters.
pub(crate) fn scraped(arguments: &Arguments, version: &str, outcomes: &[Scraped]) {
    say(&format!(
        "{version}; every exporter, with an address and a connection of its own, shows 50 values and is scraped every {}, for {} s",
        arguments.period, arguments.seconds
    ));
    say("");
    table::table(
        &[
            "exporters",
            "scrapes due",
            "done",
            "answered",
            "down at the end",
            "samples due",
            "stored",
            "connections",
            "samples/s",
            "Prometheus CPU",
            "exporters' CPU",
            "Prometheus",
            "HTTP bytes per sample",
            "WAL bytes per sample",
            "block: chunks",
            "block: index",
            "first round s",
        ],
        &outcomes.iter().map(scraped_row).collect::<Vec<_>>(),
    );
}

fn scraped_row(outcome: &Scraped) -> Vec<String> {
    let per_sample = |bytes: u64, samples: u64| format!("{:.1}", to_f64(bytes) / to_f64(samples.max(1)));
    let Block { chunks_bytes, index_bytes, samples } = outcome.block;
    vec![
        outcome.exporters.to_string(),
        outcome.due.to_string(),
        outcome.done.to_string(),
        outcome.answered.to_string(),
        outcome.down.to_string(),
        outcome.expected.to_string(),
        outcome.stored.to_string(),
        outcome.served.connections.to_string(),
        format!("{:.0}", to_f64(outcome.stored) / outcome.seconds),
        per_minute(outcome.server.cpu_s, outcome.seconds),
        per_minute(outcome.served.cpu_s, outcome.seconds),
        mib(outcome.server.memory_kib),
        per_sample(outcome.served.bytes, outcome.served.pages * PER_PAGE),
        per_sample(outcome.grown_bytes, outcome.stored),
        per_sample(chunks_bytes, samples),
        per_sample(index_bytes, samples),
        format!("{:.1}", outcome.first_s),
    ]
}

/// Prints the collector and Prometheus side by side, with ratios.
pub(crate) fn compared(ours: &[Collected], theirs: &[Scraped]) {
    table::table(
        &[
            "nodes",
            "CPU of collector and server",
            "of Prometheus",
            "ratio",
            "memory of collector and server",
            "of Prometheus",
            "ratio",
            "stored",
            "stored by Prometheus",
        ],
        &ours.iter().zip(theirs).map(|(ours, theirs)| compared_row(ours, theirs)).collect::<Vec<_>>(),
    );
}

fn compared_row(ours: &Collected, theirs: &Scraped) -> Vec<String> {
    let share = |stored, of| format!("{:.2} %", to_f64(stored) * 100.0 / to_f64(of).max(1.0));
    let ratio = |ours: f64, theirs: f64| format!("{:.2}", ours / theirs.max(1e-9));
    let our_cpu_s = (ours.collector.cpu_s + ours.server.cpu_s) / ours.seconds;
    let their_cpu_s = theirs.server.cpu_s / theirs.seconds;
    let our_kib = ours.collector.memory_kib + ours.server.memory_kib;
    let their_kib = theirs.server.memory_kib;
    vec![
        ours.agents.to_string(),
        per_minute(our_cpu_s, 1.0),
        per_minute(their_cpu_s, 1.0),
        ratio(our_cpu_s, their_cpu_s),
        mib(our_kib),
        mib(their_kib),
        ratio(to_f64(our_kib), to_f64(their_kib)),
        share(ours.stored, ours.expected),
        share(theirs.stored, theirs.expected),
    ]
}

fn per_minute(cpu_s: f64, seconds: f64) -> String {
    format!("{:.2}", cpu_s * 60.0 / seconds)
}

fn mib(kib: u64) -> String {
    format!("{:.0} MiB", to_f64(kib) / 1024.0)
}
