//! The tables of results.

use polymeter_benches::process::Usage;
use polymeter_benches::store::Kind;
use polymeter_benches::table::{self, say, to_f64};

use crate::Arguments;
use crate::collected::Collected;

/// What ran, and a table of what each number of agents took of collector and store.
pub(crate) fn collected(arguments: &Arguments, kind: Kind, outcomes: &[Collected]) {
    say(&format!(
        "{kind}; every agent sends 50 values every {}, for {} s; {} to a connection; CPU in seconds per minute; memory at most",
        arguments.period, arguments.seconds, arguments.per_connection
    ));
    say("");
    let row = |outcome: &Collected| {
        let cpu = |cpu_s: f64| per_minute(cpu_s, outcome.seconds);
        let both_s = outcome.collector.cpu_s + outcome.server.cpu_s;
        // The first round is stored, but not in the time that is measured.
        let steady = outcome.expected - outcome.agents.min(outcome.expected) * 50;
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
            mib(outcome.collector),
            mib(outcome.server),
            format!("{:.1}", to_f64(outcome.bytes) / to_f64(outcome.stored.max(1))),
            format!("{:.1}", outcome.first_s),
        ]
    };
    table::table(
        &[
            "agents",
            "sent",
            "stored",
            "stuck",
            "samples/s",
            "collector CPU",
            "server CPU",
            "agents' CPU",
            "both / agents'",
            "samples per CPU s of both",
            "collector",
            "server",
            "bytes per sample",
            "first round s",
        ],
        &outcomes.iter().map(row).collect::<Vec<_>>(),
    );
}

fn per_minute(cpu_s: f64, seconds: f64) -> String {
    format!("{:.2}", cpu_s * 60.0 / seconds)
}

fn mib(usage: Usage) -> String {
    format!("{:.0} MiB", to_f64(usage.memory_kib) / 1024.0)
}
