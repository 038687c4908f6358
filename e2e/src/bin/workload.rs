//! A process that executes commands from its arguments or its standard input: see
//! [`polymeter_e2e::workload`].

fn main() {
    polymeter_e2e::workload::main();
}
