//! `polymeter-client`: the command for login nodes, which packages install as `polymeter`.

use std::process::ExitCode;

use clap::Subcommand;
use polymeter_client::commands::{ClientCommand, jobs};
use polymeter_client::connection::agent::AgentOptions;
use polymeter_client::failure::Failure;
use polymeter_client::local::Program;
use polymeter_client::program;

const NO_DAEMONS: &str = "this build contains no agent and no collector";
const NO_STORES: &str = "this build has no store access";

/// Commands of the full program alone: the name, the action, and why it is not possible here.
const LEFT_OUT: &[(&str, &str, &str)] = &[
    ("run", "run the command", NO_DAEMONS),
    ("report", "report", NO_STORES),
    ("bundle", "make or verify a bundle", NO_STORES),
    ("export", "export the job", NO_STORES),
    ("flame", "show functions", NO_STORES),
    ("compare", "compare the jobs", NO_STORES),
    ("trend", "show the trend of the runs", NO_STORES),
    ("usage", "add up jobs", NO_STORES),
    ("advise", "propose a request", NO_STORES),
    ("notices", "list notices", NO_STORES),
    ("store", "examine the store", NO_STORES),
    ("setup", "set up this machine", NO_DAEMONS),
    ("doctor", "examine this machine", NO_DAEMONS),
    ("check", "check an agent or a collector", NO_DAEMONS),
    ("device", "try a device", NO_DAEMONS),
    ("calibrate", "measure the roofs of a node", NO_DAEMONS),
    ("overhead", "measure the slowdown", NO_STORES),
    ("keygen", "create keys", "this build contains no libzmq"),
];

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Client(ClientCommand),
    /// List the jobs that this node's agent tracks, that run on all nodes, or that have ended.
    #[command(display_order = 20)]
    Jobs(AgentOptions),
}

impl Command {
    fn execute(self, program: &Program) -> Result<ExitCode, Failure> {
        match self {
            Self::Client(command) => command.execute(program),
            Self::Jobs(agent) => jobs::print_tracked(&agent).map(|()| ExitCode::SUCCESS),
        }
    }
}

fn main() -> ExitCode {
    let command = std::env::args_os().skip(1).find(|argument| argument != "help").unwrap_or_default();
    if let Some((_, action, cause)) = LEFT_OUT.iter().find(|(name, ..)| command == *name) {
        let message = format!("cannot {action}: {cause}; use the full build of polymeter");
        return program::report(&Failure::Failed(message), program::unparsed_format());
    }
    program::main(Command::execute, None)
}
