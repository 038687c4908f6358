//! `polymeter-bench`: benches of the whole system, each a subcommand.

mod experiments;

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use polymeter_benches::supervised;

use crate::experiments::{
    citus, connections, control, ebpf, failover, gather, hindsight, idle, ingest, jitter, jobs, live,
    overhead, pages, papers, parts, polling, read_cost, record, regions, remote_write, scale, stacks,
    straggler, usage, wire, world,
};

/// Whole-system experiments. Each prints the machine, the revision and a table; --quick runs it for some
/// seconds.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

/// The line of each in `--help` is the doc comment of its arguments.
#[derive(Debug, Subcommand)]
enum Experiment {
    // The agent.
    Gather(gather::Arguments),
    Idle(idle::Arguments),
    Hindsight(hindsight::Arguments),
    Jitter(jitter::Arguments),
    ReadCost(read_cost::Arguments),
    Ebpf(ebpf::Arguments),
    Overhead(overhead::Arguments),
    Control(control::Arguments),
    Jobs(jobs::Arguments),
    Polling(polling::Arguments),
    Regions(regions::Arguments),
    Stacks(stacks::Arguments),
    // The wire.
    Wire(wire::Arguments),
    Connections(connections::Arguments),
    // Collector and store.
    Ingest(ingest::Arguments),
    Scale(scale::Arguments),
    RemoteWrite(remote_write::Arguments),
    Straggler(straggler::Arguments),
    Failover(failover::Arguments),
    Citus(citus::Arguments),
    // Reading.
    World(world::Arguments),
    Usage(usage::Arguments),
    Live(live::Arguments),
    Pages(pages::Arguments),
    // All of them, against publications.
    Papers(papers::Arguments),
    // The data of the others.
    Record(record::Arguments),
    #[command(subcommand, hide = true)]
    Part(parts::Part),
}

fn main() -> ExitCode {
    // Help and wrong arguments need no other process, and parts are processes of an experiment.
    let experiment = Arguments::parse().experiment;
    if !matches!(experiment, Experiment::Part(_)) {
        match supervised::run_again() {
            Ok(Some(code)) => return code,
            Ok(None) => {}
            Err(error) => return fail(&error),
        }
    }
    match run(experiment) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error.as_ref()),
    }
}

fn run(experiment: Experiment) -> Result<(), Box<dyn Error>> {
    match experiment {
        Experiment::Gather(arguments) => gather::run(arguments),
        Experiment::Idle(arguments) => idle::run(arguments),
        Experiment::Hindsight(arguments) => hindsight::run(arguments),
        Experiment::Jitter(arguments) => jitter::run(arguments),
        Experiment::ReadCost(arguments) => read_cost::run(arguments),
        Experiment::Ebpf(arguments) => ebpf::run(arguments),
        Experiment::Overhead(arguments) => overhead::run(arguments),
        Experiment::Control(arguments) => control::run(arguments),
        Experiment::Jobs(arguments) => jobs::run(arguments),
        Experiment::Polling(arguments) => polling::run(arguments),
        Experiment::Regions(arguments) => regions::run(&arguments),
        Experiment::Stacks(arguments) => stacks::run(arguments),
        Experiment::Wire(wire::Arguments {}) => wire::run(),
        Experiment::Connections(arguments) => connections::run(&arguments),
        Experiment::Ingest(arguments) => ingest::run(arguments),
        Experiment::Scale(arguments) => scale::run(arguments),
        Experiment::RemoteWrite(arguments) => remote_write::run(&arguments),
        Experiment::Straggler(arguments) => straggler::run(arguments),
        Experiment::Failover(arguments) => failover::run(arguments),
        Experiment::Citus(arguments) => citus::run(arguments),
        Experiment::World(arguments) => world::run(arguments),
        Experiment::Usage(arguments) => usage::run(&arguments),
        Experiment::Live(arguments) => live::run(arguments),
        Experiment::Pages(arguments) => pages::run(&arguments),
        Experiment::Papers(arguments) => papers::run(&arguments),
        Experiment::Record(arguments) => record::run(&arguments),
        Experiment::Part(part) => part.run(),
    }
}

#[expect(clippy::print_stderr, reason = "stdout has the results")]
fn fail(error: &dyn Error) -> ExitCode {
    eprintln!("Error: {error}");
    ExitCode::FAILURE
}
