//! A process that does as it is told: see [`polymeter_e2e::workload`].

fn main() {
    polymeter_e2e::workload::main();
}
