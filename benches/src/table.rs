//! Results as a table, and what machine they were taken on.

use std::fs;

/// Prints one line of a result on stdout.
#[expect(clippy::print_stdout, reason = "an experiment's result is what it prints")]
pub fn say(line: &str) {
    println!("{line}");
}

/// Prints rows as a Markdown table, which is also readable as it is.
pub fn table(head: &[&str], rows: &[Vec<String>]) {
    say(&format!("| {} |", head.join(" | ")));
    say(&format!("|{}", " --- |".repeat(head.len())));
    for row in rows {
        say(&format!("| {} |", row.join(" | ")));
    }
}

/// Prints what machine this is.
pub fn machine() {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let cpus = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    say(&format!(
        "machine: {cpus} x {}, Linux {}",
        model.trim_start_matches([' ', '\t', ':']),
        kernel.trim()
    ));
    say("");
}

/// The nearest double.
#[expect(clippy::cast_precision_loss, reason = "results are rounded to a few digits")]
pub const fn to_f64(value: u64) -> f64 {
    value as f64
}
